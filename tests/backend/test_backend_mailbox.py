"""What the membership thread leaves for the user's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from kafka_coop.backend.mailbox import Item, Mailbox, StartsFound, TopicErrors
from kafka_coop.membership.effects import CallAssigned, Step
from kafka_coop.types import NO_PARTITIONS, Generation

PATIENCE = 60.0


def take(mailbox: Mailbox) -> Item | None:
    item = mailbox.begin()
    mailbox.done()
    return item


def step(number: int) -> Step:
    return Step(step_id=number, actions=(CallAssigned(partitions=NO_PARTITIONS),))


def test_items_come_in_order() -> None:
    mailbox = Mailbox()
    items: list[Item] = [
        step(1),
        StartsFound(generation=Generation(1)),
        TopicErrors(errors={}),
        step(2),
    ]
    for item in items:
        mailbox.put(item)
    assert [take(mailbox) for _ in items] == items
    assert take(mailbox) is None


def test_a_step_is_taken_or_withdrawn_and_never_both() -> None:
    mailbox = Mailbox()
    for number in (1, 2, 3):
        mailbox.put(step(number))
    assert mailbox.withdraw(2)
    assert not mailbox.withdraw(2)
    assert take(mailbox) == step(1)
    assert not mailbox.withdraw(1)
    assert take(mailbox) == step(3)


def test_what_was_begun_comes_again_until_it_is_done() -> None:
    mailbox = Mailbox()
    mailbox.put(step(1))
    mailbox.put(step(2))
    assert mailbox.begin() == mailbox.begin() == step(1)
    assert not mailbox.withdraw(1)
    assert mailbox.withdraw(2)
    mailbox.put(step(3))
    mailbox.done()
    mailbox.done()
    assert mailbox.begin() == step(3)


def test_taking_and_withdrawing_race() -> None:
    """From two threads: each step ends on exactly one side."""
    mailbox, count = Mailbox(), 2000
    for number in range(count):
        mailbox.put(step(number))
    taken: list[int] = []

    def take_all() -> None:
        while (item := take(mailbox)) is not None:
            assert isinstance(item, Step)
            taken.append(item.step_id)

    user = threading.Thread(target=take_all)
    user.start()
    withdrawn = [number for number in reversed(range(count)) if mailbox.withdraw(number)]
    user.join(PATIENCE)
    assert sorted(taken + withdrawn) == list(range(count))


def test_waiting_ends_with_an_item_or_with_the_end() -> None:
    mailbox = Mailbox()
    mailbox.wait(0)
    arrivals: list[Callable[[], None]] = [partial(mailbox.put, step(1)), mailbox.set_left]
    for arrive in arrivals:
        waiting = threading.Thread(target=mailbox.wait, args=(PATIENCE,))
        waiting.start()
        arrive()
        waiting.join(PATIENCE / 2)
        assert not waiting.is_alive()
        mailbox.items.clear()
    assert mailbox.left


def test_nothing_may_be_delivered_before_a_lease_was_given() -> None:
    mailbox = Mailbox()
    assert mailbox.lease_until == float("-inf")
    assert not mailbox.expecting
    assert not mailbox.left

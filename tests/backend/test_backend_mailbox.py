"""What the membership thread leaves for the user's."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial

from kafka_coop.backend.mailbox import Item, Mailbox, StartsFound, TopicErrors
from kafka_coop.membership.effects import CallAssigned, Step
from kafka_coop.types import NO_PARTITIONS, Generation

PATIENCE = 60.0


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
    assert [mailbox.take() for _ in items] == items
    assert mailbox.take() is None


def test_a_step_is_taken_or_withdrawn_and_never_both() -> None:
    mailbox = Mailbox()
    for number in (1, 2, 3):
        mailbox.put(step(number))
    assert mailbox.withdraw(2)
    assert not mailbox.withdraw(2)
    assert mailbox.take() == step(1)
    assert not mailbox.withdraw(1)
    assert mailbox.take() == step(3)


def test_taking_and_withdrawing_race() -> None:
    """From two threads: each step ends on exactly one side."""
    mailbox, count = Mailbox(), 2000
    for number in range(count):
        mailbox.put(step(number))
    taken: list[int] = []

    def take() -> None:
        while (item := mailbox.take()) is not None:
            assert isinstance(item, Step)
            taken.append(item.step_id)

    user = threading.Thread(target=take)
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

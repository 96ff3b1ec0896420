"""The search for a group in which an assignor breaks a rule."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import cast

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity

from kafka_coop.testing.assignor.rounds import check_rounds
from kafka_coop.testing.assignor.rules import Maker, check_interface, check_plan, check_repeats
from kafka_coop.testing.assignor.situation import Limits, Shape, Situation, situations
from kafka_coop.testing.assignor.violation import AssignorCheckError, Rule
from kafka_coop.types import Assignor

_UNSTEADY = "(but not always: chance, or the time, plays a part)"
_PATIENCE = 20


def check_assignor(
    assignor: Assignor | Callable[[], Assignor],
    *,
    examples: int = 200,
    subscriptions: Shape = "any",
    equal_partitions: bool = False,
    complete: bool = True,
    racks: bool = False,
    members: int = 5,
    topics: int = 3,
    partitions: int = 4,
    rounds: int = 4,
) -> None:
    """Looks for a small group in which an assignor of yours goes wrong.

    Tries it on groups with disputed, stale and impossible claims, with members that send
    nonsense, miss rounds, join and leave: once by itself, and over rounds of the leader's whole
    pipeline. `Rule` lists what it must keep. What can't be seen from here is an order that changes
    from process to process, as that of a set of texts does: sort before you iterate.

    Args:
        assignor: What makes one, such as the class; or an instance, which is then copied.
        examples: How many groups to try. Two hundred take some seconds.
        subscriptions: ``"equal"``: all members subscribe to the same topics; ``"any"``: or not.
        equal_partitions: All topics have equally many partitions.
        complete: Every partition that somebody subscribes to must have an owner in the end.
            False for a strategy that leaves some out on purpose.
        racks: Members and replicas are in racks (KIP-881).
        members: At most so many.
        topics: At most so many.
        partitions: At most so many a topic.
        rounds: In how many rounds a rebalance must end.

    Raises:
        AssignorCheckError: It broke a rule. The text holds the smallest such group found, as
            code, and what happened in it.
    """
    make = _maker(assignor)
    check_interface(make())
    limits = Limits(
        subscriptions=subscriptions,
        equal_partitions=equal_partitions,
        racks=racks,
        members=members,
        topics=topics,
        partitions=partitions,
    )
    # One plan first: what is wrong with that needs no rounds to be shown.
    _search(make, limits, examples, lambda x: check_plan(make, x, complete=complete))
    _search(make, limits, examples, lambda x: check_rounds(make, x, most=rounds, complete=complete))


def _search(make: Maker, limits: Limits, examples: int, check: Callable[[Situation], None]) -> None:
    found: list[AssignorCheckError] = []

    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(situations(limits))
    def search(situation: Situation) -> None:
        try:
            check(situation)
        except AssignorCheckError as error:
            if found and error.rule is not found[0].rule:
                return  # shrinking must not end with something else than it began with
            found.append(_told(make, error, situation))
            raise

    try:
        search()
    except AssignorCheckError as error:
        _check_for_chance(make, found[-1])
        raise found[-1] from error.__cause__
    except hypothesis.errors.Flaky:
        _check_for_chance(make, found[-1])
        last = AssignorCheckError(Rule.REPEATABLE, (*found[-1].details, _UNSTEADY))
        raise _told(make, last, found[-1].situation) from None


def _check_for_chance(make: Maker, found: AssignorCheckError) -> None:
    """Who answers by chance breaks other rules too; that it does so is what has to be told."""
    if found.situation is not None and found.rule in {Rule.AT_REST, Rule.ENDS, Rule.ORDER}:
        try:
            check_repeats(make, found.situation, times=_PATIENCE)
        except AssignorCheckError as error:
            raise _told(make, error, found.situation) from None


def _told(
    make: Maker, error: AssignorCheckError, situation: Situation | None
) -> AssignorCheckError:
    name = type(make()).__name__
    return AssignorCheckError(error.rule, error.details, name=name, situation=situation)


def _maker(assignor: object) -> Maker:
    """A class has the attributes of its instances, and so looks like an assignor itself."""
    if isinstance(assignor, Assignor) and not isinstance(assignor, type):
        instance = assignor
        return lambda: copy.deepcopy(instance)
    if not callable(assignor):
        check_interface(assignor)
    return cast("Maker", assignor)

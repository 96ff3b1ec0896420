"""The rules for a group over several rounds, each through the leader's whole pipeline."""

from __future__ import annotations

from dataclasses import replace

from kafka_coop.leader import LeaderOutcome, lead
from kafka_coop.planning.table import runs
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.testing.assignor.rules import (
    At,
    Maker,
    as_member_sends,
    check_complete,
    tell,
    user_data_of,
)
from kafka_coop.testing.assignor.situation import Event, Situation
from kafka_coop.testing.assignor.violation import AssignorCheckError, Rule
from kafka_coop.types import (
    NO_PARTITIONS,
    Assignment,
    Assignor,
    Generation,
    Partitions,
    RebalanceProtocol,
    Subscription,
)


class Rounds:
    """Members that do what they are told, each with an instance of the strategy.

    Under the eager protocol they give up everything before they join; under the cooperative one
    they revoke what left, and join again.
    """

    def __init__(self, make: Maker, situation: Situation) -> None:
        self._make = make
        self._cluster = situation.cluster
        self._group = dict(situation.group)
        self._noise = dict(situation.noise)
        self._strategies: dict[str, Assignor] = {}
        self._sent = {m: as_member_sends(make, s) for m, s in self._group.items()}
        self._generation = max((s.generation for s in self._group.values()), default=0)
        self._eager = RebalanceProtocol.COOPERATIVE not in make().supported_protocols
        self._told: list[str] = []

    def settle(self, most: int, *, complete: bool) -> None:
        """Rounds until the leader wants no further one; then one more, in which nothing moves."""
        for _ in range(most):
            if not self._round().follow_up:
                break
        else:
            self._fail(Rule.ENDS, f"there is no end after {most} rounds")
        owned = self._owned()
        if complete:
            try:
                check_complete(self._cluster, self._group, {p for o in owned.values() for p in o})
            except AssignorCheckError as error:
                self._fail(error.rule, *error.details)
        self._round()
        after = self._owned()
        moved = [m for m in owned if after[m] != owned[m]]
        if moved:
            self._fail(Rule.AT_REST, f"{', '.join(moved)} got something else, for no reason")

    def happen(self, event: Event) -> None:
        """Something happens to the group; the next `settle` finds it so."""
        members = sorted(self._group)
        self._told.append(event)
        match event:
            case "join":
                topics = {t for s in self._group.values() for t in s.topics}
                self._group["n" + members[-1]] = Subscription(topics=tuple(sorted(topics)))
            case "leave" if len(members) > 1:
                del self._group[members[0]]
                self._strategies.pop(members[0], None)
            case "grow":
                more = {t: n + 1 for t, n in self._cluster.partitions.items()}
                self._cluster = replace(self._cluster, partitions=more)
            case "miss":
                self._round(missed_by=members[0])
            case _:
                pass

    def _round(self, missed_by: str | None = None) -> LeaderOutcome:
        self._generation += 1
        self._group = {m: self._before_joining(s) for m, s in self._group.items()}
        sent = {
            m: replace(s, user_data=self._noise.get(m, self._user_data(m, s)))
            for m, s in self._group.items()
        }
        leader = self._strategy(min(self._group))
        outcome = lead(leader, self._cluster, {m: encode_subscription(s) for m, s in sent.items()})
        if outcome.error is not None:
            rule = Rule.HOSTILE if self._noise else Rule.RETURNS
            self._fail(rule, str(outcome.error.__cause__ or outcome.error))
        got = {m: decode_assignment(b) for m, b in outcome.assignments.items()}
        self._told.append(
            "; ".join(f"{m} {runs(a.partitions) or 'nothing'}" for m, a in got.items())
        )
        self._noise.clear()  # once: who never says what it had can't be left as it is
        self._check_hand_over({m: a.partitions for m, a in got.items()})
        for member, assignment in got.items():
            if member != missed_by:
                self._adopt(member, assignment)
        return outcome

    def _before_joining(self, subscription: Subscription) -> Subscription:
        """KIP-429: what is no longer subscribed to is revoked before the join."""
        owned = NO_PARTITIONS if self._eager else subscription.owned.only(subscription.topics)
        return replace(subscription, owned=owned)

    def _user_data(self, member: str, subscription: Subscription) -> bytes | None:
        if member in self._strategies:
            return user_data_of(self._strategies[member], subscription)
        return self._sent.get(member)

    def _strategy(self, member: str) -> Assignor:
        if member not in self._strategies:
            self._strategies[member] = self._make()
        return self._strategies[member]

    def _adopt(self, member: str, assignment: Assignment) -> None:
        tell(self._strategy(member), assignment, Generation(self._generation))
        self._group[member] = replace(
            self._group[member],
            owned=assignment.partitions,
            generation=Generation(self._generation),
        )

    def _check_hand_over(self, got: dict[str, Partitions]) -> None:
        owners: dict[At, str] = {}
        for member, partitions in got.items():
            for at in partitions:
                if at in owners:
                    self._fail(Rule.ONCE, f"{at} was given to {owners[at]} and {member}")
                owners[at] = member
            came = partitions - self._group[member].owned
            for other in self._group.keys() - {member}:
                if both := came & self._group[other].owned:
                    told = f"{member} was given {runs(both)}, which {other} still claims"
                    self._fail(Rule.HANDED_OVER, told)

    def _owned(self) -> dict[str, Partitions]:
        return {m: s.owned for m, s in self._group.items()}

    def _fail(self, rule: Rule, *details: str) -> None:
        history = tuple(f"  {i}. {what}" for i, what in enumerate(self._told, 1))
        raise AssignorCheckError(rule, (*details, "round by round:", *history))


def check_rounds(make: Maker, situation: Situation, *, most: int, complete: bool) -> None:
    """The group settles, something happens, it settles again, and so on."""
    rounds = Rounds(make, situation)
    rounds.settle(most, complete=complete)
    for event in situation.events:
        rounds.happen(event)
        rounds.settle(most, complete=complete)

"""Random scenarios: a seed in, a world's whole fate out."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from kafka_coop.simulation import faults as ft
from kafka_coop.simulation.dialects import HARMLESS, PEERS
from kafka_coop.simulation.network import JOIN_LANE, MAIN_LANE
from kafka_coop.simulation.user import UserHabits
from kafka_coop.simulation.world import MemberPlan, Scenario, Timing

_TOPICS = ("alpha", "beta", "gamma")
_STRATEGIES = (
    ("cooperative-sticky",),
    ("cooperative-sticky",),
    ("constrained-cooperative-sticky",),
    ("range",),
)

# Most of what goes wrong takes two or three members and a few incidents: short schedules find
# more in a second. The long ones are for the rest.
_GROUP_SIZES = (2, 2, 2, 2, 2, 2, 3, 3, 3, 4, 5)
_LENGTHS = ((1, 3), (1, 3), (2, 5), (2, 5), (3, 9), (6, 24))


class _Dice:
    """Draws everything that is random in a scenario."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)  # noqa: S311  # a seed is to give the same run again
        self.seed = seed

    def chance(self, p: float) -> bool:
        return self.random.random() < p

    def scenario(self) -> Scenario:
        draw = self.random
        topics = {t: draw.randint(1, 5) for t in _TOPICS[: draw.randint(1, 3)]}
        members = self._members(draw.choice(_GROUP_SIZES))
        timing = self._timing()
        incidents = self._incidents(tuple(members), timing)
        return Scenario(
            seed=self.seed,
            topics=topics,
            members=members,
            timing=timing,
            incidents=incidents,
            quiet_at=incidents[-1].at + 0.5,
            last_leaver=draw.choice((*members, "")),
        )

    def _timing(self) -> Timing:
        draw = self.random
        return Timing(
            session=draw.choice((2.0, 3.0, 5.0)),
            rebalance=draw.choice((3.0, 6.0)),
            request=draw.choice((1.0, 3.0)),
            heartbeat=draw.choice((0.5, 1.0, 1.0, None)) if self.chance(0.3) else 1.0,
            initial_delay=draw.choice((0.0, 0.0, 0.1, 0.5)),
            latency=(0.0005, draw.choice((0.001, 0.001, 0.02))),
        )

    def _members(self, count: int) -> dict[str, MemberPlan]:
        strategies = self.random.choice(_STRATEGIES)
        uniform = self.chance(0.5)
        common = self._subscription()
        members = {}
        for number in range(count):
            topics, patterns = common if uniform else self._subscription()
            members[f"m{number}"] = MemberPlan(
                topics=topics,
                patterns=patterns,
                strategies=strategies,
                instance_id=f"i{number}" if self.chance(0.25) else None,
                habits=self._habits(),
            )
        return members

    def _subscription(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if self.chance(0.15):
            return (), (self.random.choice((".*a", "alpha|gam", "b")),)
        return tuple(sorted(self.random.sample(_TOPICS, self.random.randint(1, 3)))), ()

    def resubscribe(self, member: str) -> ft.Fault:
        topics, patterns = self._subscription()
        return ft.Resubscribe(member=member, topics=topics, patterns=patterns)

    def _habits(self) -> UserHabits:
        draw = self.random
        return UserHabits(
            poll_interval=draw.choice((0.3, 0.6, 0.9)),
            callback=draw.choice((0.0, 0.0, 0.01, 0.3, 1.2)),
            auto_commit_interval=draw.choice((0.3, 1.0, 1.0, None)),
            commit_timeout=draw.choice((1.0, 5.0)),
        )

    def _incidents(self, members: tuple[str, ...], timing: Timing) -> tuple[ft.Incident, ...]:
        draw = self.random
        incidents: list[ft.Incident] = []
        now = 0.0
        for member in members:
            if self.chance(0.8):
                incidents.append(ft.Incident(at=now, fault=ft.Start(member=member)))
                now += self._gap(short=True)
        now += draw.choice((0.0, 0.3, 1.0))
        for _ in range(draw.randint(*draw.choice(_LENGTHS))):
            for fault in self._fault(members, timing):
                incidents.append(ft.Incident(at=round(now, 4), fault=fault))
                now += self._gap()
        return tuple(incidents)

    def _gap(self, *, short: bool = False) -> float:
        """Races are found where things happen within a round's milliseconds."""
        draw = self.random
        most = draw.choice((0.0, 0.002, 0.01, 0.05) if short else (0.003, 0.02, 0.1, 0.6, 1.5))
        return most * draw.random()

    def _fault(self, members: tuple[str, ...], timing: Timing) -> tuple[ft.Fault, ...]:
        makers, weights = zip(*_FAULTS, strict=True)
        maker: _Maker = self.random.choices(makers, weights)[0]
        return (maker(self, self.random.choice(members), timing),)

    def while_(self, *limits: float) -> float:
        """A duration around one of these limits: just below, just above, or far below."""
        limit = self.random.choice(limits)
        return round(limit * self.random.choice((0.01, 0.1, 0.5, 0.95, 1.05, 1.6)), 4)

    def node(self) -> int:
        return self.random.randint(1, 3)


_Maker = Callable[[_Dice, str, Timing], ft.Fault]

_FAULTS: tuple[tuple[_Maker, float], ...] = (
    (lambda _, m, __: ft.Start(member=m), 6.0),
    (lambda _, m, __: ft.Crash(member=m), 2.0),
    (lambda _, m, __: ft.Close(member=m), 2.0),
    (lambda d, m, t: ft.Drain(member=m, seconds=d.while_(t.rebalance, 1.0)), 2.0),
    (lambda _, m, __: ft.Unsubscribe(member=m), 1.0),
    (lambda d, m, _: d.resubscribe(m), 2.5),
    (lambda _, m, __: ft.Enforce(member=m), 1.0),
    (lambda _, m, __: ft.CommitNow(member=m), 2.0),
    (lambda d, m, t: ft.Stall(member=m, seconds=d.while_(t.session, t.rebalance)), 2.0),
    (lambda d, m, t: ft.Jump(member=m, seconds=d.while_(t.session, t.rebalance)), 1.0),
    (lambda d, m, t: ft.SlowPoll(member=m, seconds=d.while_(t.rebalance, 1.0)), 2.0),
    (lambda d, m, t: ft.SlowCallbacks(member=m, seconds=d.while_(t.rebalance, 0.5)), 1.5),
    (lambda d, m, t: ft.SlowAssignor(member=m, seconds=d.while_(t.session, 0.5)), 0.7),
    (lambda d, m, _: ft.Cut(member=m, lane=d.random.choice((None, MAIN_LANE, JOIN_LANE))), 2.0),
    (
        lambda d, m, t: ft.Partition(
            member=m,
            node_id=d.random.choice((None, 1, 2)),
            seconds=d.while_(t.session, t.rebalance, t.request),
        ),
        2.0,
    ),
    (lambda d, m, _: ft.SlowNetwork(member=m, factor=d.random.choice((1.0, 10.0, 100.0))), 1.0),
    (lambda d, _, __: ft.GrowTopic(topic=d.random.choice(_TOPICS), by=d.random.randint(1, 3)), 1.0),
    (lambda d, _, __: ft.DeleteTopic(topic=d.random.choice(_TOPICS)), 0.7),
    (
        lambda d, _, __: ft.CreateTopic(
            topic=d.random.choice(_TOPICS), partitions=d.random.randint(1, 4)
        ),
        1.2,
    ),
    (
        lambda d, _, __: ft.MoveCoordinator(
            to=d.random.choice((1, 2, 3, None)), loading=d.random.choice((0.0, 0.05, 0.5))
        ),
        1.5,
    ),
    (
        lambda d, _, t: ft.FailBroker(
            node_id=d.node(), seconds=d.while_(t.session), takeover=d.random.choice((0.0, 0.1, 1.0))
        ),
        1.0,
    ),
    (lambda d, _, t: ft.HoldMetadata(node_id=d.node(), seconds=d.while_(t.rebalance)), 0.8),
)


_RANGE, _BOTH, _COOPERATIVE = ("range",), ("range", "cooperative-sticky"), ("cooperative-sticky",)
_UPGRADES = (
    (_RANGE, _BOTH),
    (_BOTH, _COOPERATIVE),
    (_COOPERATIVE, _BOTH),
    (_BOTH, _RANGE),
)
"""The bounces of an upgrade (KIP-429) and of a downgrade; every pair shares a strategy."""


class _MixedDice(_Dice):
    """Groups of several kinds of clients, some in the middle of an upgrade or a downgrade."""

    def _members(self, count: int) -> dict[str, MemberPlan]:
        members = super()._members(count)
        self.bounce = self.random.choice(_UPGRADES) if self.chance(0.4) else None
        alike = self.random.choice((_RANGE, _COOPERATIVE, _COOPERATIVE))
        return {
            name: replace(
                plan,
                strategies=alike if self.bounce is None else self.bounce[0],
                client=self._client(),
            )
            for name, plan in members.items()
        }

    def _client(self) -> str:
        if self.bounce is not None:
            return self.random.choice(("", "java"))  # the others refuse two strategies
        return self.random.choice(("", "", *PEERS, *HARMLESS))

    def _fault(self, members: tuple[str, ...], timing: Timing) -> tuple[ft.Fault, ...]:
        if self.bounce is None or not self.chance(0.4):
            return super()._fault(members, timing)
        member = self.random.choice(members)
        gone = ft.Close(member=member) if self.chance(0.8) else ft.Crash(member=member)
        again = ft.Redeploy(member=member, strategies=self.bounce[1])
        return gone, again, ft.Start(member=member)


_EVERY_FIFTH = 5


def random_scenario(seed: int) -> Scenario:
    """The scenario of a seed: always the same one. Every fifth is a mixed group."""
    mixed = seed % _EVERY_FIFTH == _EVERY_FIFTH - 1
    return (_MixedDice(seed) if mixed else _Dice(seed)).scenario()

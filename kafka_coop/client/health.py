"""Whether a consumer is well, in the words of whoever is paged about it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kafka_coop.metrics.scrape import MemberSnapshot
from kafka_coop.types import Generation, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """One consumer at one moment.

    Attributes:
        subscribed: It wants topics of a group, or was given partitions by hand.
        joined: It is in the group, or needs none.
        stable: It is, and no rebalance is under way.
        fenced: What it owns is not its to read any more: no heartbeat was acknowledged for a
            whole session, or the group went on without it.
        poll_overdue: The application has not polled for ``max.poll.interval.ms``, be it since it
            subscribed.
        lagging: Its lag is above what was asked for; None: it was not asked, or the lag is not
            known.
        closed: It is closed.
        over: It can't be a member any more, nor become one: close it, and make another.
        lag: Records still to come, over the partitions whose lag is known; None: of none.
        owned: How many partitions it owns.
        generation: The group's; -1 outside.
        since_poll: Since the application was last seen polling; None: never.
    """

    subscribed: bool
    joined: bool
    stable: bool
    fenced: bool
    poll_overdue: bool
    lagging: bool | None
    closed: bool
    over: bool
    lag: int | None
    owned: int
    generation: int
    since_poll: timedelta | None

    @property
    def live(self) -> bool:
        """Whether a restart would not help: for a liveness probe.

        A rebalance, a broker that is away or a long lag are no reason to be restarted; an
        application that stopped polling is, and so is a membership that is over.
        """
        return not (self.closed or self.over or self.poll_overdue)

    @property
    def ready(self) -> bool:
        """Whether it does its work: for a readiness probe."""
        return self.live and self.joined and not self.fenced and not self.lagging

    @property
    def problems(self) -> tuple[str, ...]:
        """What is wrong, a phrase each; a rebalance under way is none."""
        found = {
            "closed": self.closed,
            "over for good": self.over,
            "not subscribed": not self.subscribed and not self.closed,
            "not in the group": self.subscribed and not self.joined,
            "fenced": self.fenced,
            "poll overdue": self.poll_overdue,
            "lagging": bool(self.lagging),
        }
        return tuple(what for what, wrong in found.items() if wrong)

    def as_dict(self) -> dict[str, Any]:
        """JSON-able values, durations in seconds."""
        return {
            "live": self.live,
            "ready": self.ready,
            "problems": list(self.problems),
            "subscribed": self.subscribed,
            "joined": self.joined,
            "stable": self.stable,
            "fenced": self.fenced,
            "poll_overdue": self.poll_overdue,
            "lagging": self.lagging,
            "closed": self.closed,
            "over": self.over,
            "lag": self.lag,
            "owned": self.owned,
            "generation": self.generation,
            "seconds_since_poll": (
                None if self.since_poll is None else self.since_poll.total_seconds()
            ),
        }


def assess(
    *,
    closed: bool,
    over: bool,
    subscribed: bool,
    by_hand: bool,
    owned: Partitions,
    snapshot: MemberSnapshot,
    lease_until: float,
    last_poll: float,
    subscribed_at: float,
    now: float,
    max_poll_interval: timedelta,
    max_lag: int | None,
) -> Health:
    """Judges what was seen. All moments are of one clock.

    Whoever subscribes has the whole interval to poll, as the group sees it, too: what it did before
    does not count, and a process that hangs between the two is overdue in the end.
    """
    lags = [p.lag for p in snapshot.progress.values() if p.lag is not None]
    lag = sum(lags) if lags else None
    polled = last_poll > float("-inf")
    since = timedelta(seconds=max(now - last_poll, 0.0)) if polled else None
    idle = timedelta(seconds=now - max(last_poll, subscribed_at))
    joined = by_hand or Generation(snapshot.generation) >= 0
    return Health(
        subscribed=subscribed or by_hand,
        joined=joined and not closed,
        stable=joined and (by_hand or snapshot.stable) and not closed,
        fenced=not by_hand and not closed and len(owned) > 0 and now >= lease_until,
        poll_overdue=not closed and subscribed and idle > max_poll_interval,
        lagging=None if max_lag is None or lag is None else lag > max_lag,
        closed=closed,
        over=over and not closed,
        lag=lag,
        owned=len(owned),
        generation=int(snapshot.generation),
        since_poll=since,
    )

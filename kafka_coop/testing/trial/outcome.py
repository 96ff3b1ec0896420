"""What became of a run: its plan, its faults, the verdict. Written as JSON, and read again."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Self

from kafka_coop.testing.trial.origin import Origin

NANO: Final = 1_000_000_000
KILL: Final = "member killed"
SLOW: Final = "users slow in on_revoke"
DELETED: Final = "topic deleted"
MOVED: Final = "coordinator moved"
COORDINATOR: Final = "coordinator"
"""Of the group, one of a broker's roles."""
EXCUSE_NOTHING: Final = (DELETED,)
"""However long it lasts: what is judged is another topic."""
SLOWEST: Final = timedelta(seconds=5)
"""So long a slow user's on_revoke may take."""
OTHERS_HEARTBEAT: Final = timedelta(seconds=1)
"""Other clients' heartbeat.interval.ms: so late they may hear of a round."""
RESULT: Final = "result.json"
"""Its name beside the journals."""
_WIDENED: Final = re.compile(r"the topic has (\d+) partitions")


def nanoseconds(lasting: timedelta) -> int:
    """As journals count."""
    return lasting // timedelta(microseconds=1) * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be done.

    Attributes:
        faults: How many, in that time; fewer where they take longer than half as much again.
        others: How many of the members are of other clients: Java's and librdkafka's, by turns.
        only: Names of `FAULTS`; empty: all.
        rate: Records a second.
    """

    faults: int
    lasting: timedelta
    members: int
    others: int = 0
    seed: int = 1
    partitions: int = 24
    rate: int = 200
    session: timedelta = timedelta(seconds=6)
    transactions: bool = False
    only: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        durations = {"lasting": str(self.lasting), "session": str(self.session)}
        return {**asdict(self), **durations, "only": [*self.only]}


@dataclass(frozen=True, slots=True, kw_only=True)
class Injected:
    """A fault that was.

    Attributes:
        at: Monotonic nanoseconds.
        until: When all of it was over: the broker served again, the process went on.
        lasting: For how long it was meant to last, in seconds.
        member: Whom it befell; empty: no member.
        roles: What the broker was that it befell, "controller" and "coordinator"; None: nobody
            asked, or could say.
        in_vain: Whether a broker that was to end went on regardless, and was killed.
        silent: The longest time between two records of one partition, in seconds, that is
            charged to it; None: none is.
        ownerless: The longest time without an owner, likewise.
    """

    at: int
    name: str
    what: str
    until: int = 0
    lasting: float = 0.0
    member: str = ""
    roles: tuple[str, ...] | None = None
    in_vain: bool = False
    silent: float | None = None
    ownerless: float | None = None

    @property
    def excuses_until(self) -> int:
        """Until when it may be to blame; of what excuses nothing, its first moment alone."""
        return self.at if self.name in EXCUSE_NOTHING else max(self.until, self.at)


@dataclass(slots=True, kw_only=True)
class Result:
    """What became of a run: first what was recorded, then what the judge found.

    Attributes:
        origin: Where it comes from; None: it was not recorded.
        ends: Records produced, by partition.
        killed: When members were killed or ended by themselves, monotonic nanoseconds.
        committed: The group's offsets after all had closed; None: nobody looked.
        not_once: What the output's log says of each record that was copied twice, or never.
        failed: Members that ended by themselves, and must not: their last words.
        endings: Members that ended by themselves as they may, see `ending`, by the reason in words;
            None: nobody looked.
        others: Members of other clients.
        late: Records of a zombie but for those in hand, see `Verdict`.
        late_of_others: Records of other clients' zombies, in hand or not; not judged: they have no
            lease, and Java's poll returns 500 at once.
        ownerless_too_long, silent_too_long: Waits longer than `liveness` allows.
        longest_ownerless, longest_silence: In seconds.
        slow: How often a slow user's on_revoke was called, and returned.
        outlived: How often the group was in a later round by then.
        evicted_slow: How often the member was none any more by then, as it says itself.
        fatal: Errors told to users of ours after which their member is none any more.
        taken_by_pauses: Members that a pause within their session alone has cost something.
        lone_pauses: How many such pauses nothing else could have been to blame for.
        miscommitted: Offsets that are not what they must be after a clean close.
    """

    plan: dict[str, Any]
    origin: Origin | None = None
    faults: list[Injected] = field(default_factory=list)
    ends: dict[int, int] = field(default_factory=dict)
    killed: dict[str, int] = field(default_factory=dict)
    committed: dict[int, int] | None = None
    copied: int | None = None
    copied_twice: int | None = None
    never_copied: int | None = None
    not_once: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    endings: dict[str, list[str]] | None = None
    others: list[str] = field(default_factory=list)
    processes: int = 0
    produced: int = 0
    processed: int = 0
    repeated: int = 0
    handovers: int = 0
    slow: int | None = None
    outlived: int | None = None
    evicted_slow: int | None = None
    fatal: list[str] = field(default_factory=list)
    lost: int = 0
    overlaps: list[str] = field(default_factory=list)
    strays: int = 0
    late: int = 0
    late_of_others: int = 0
    in_hand: int = 0
    ownerless_too_long: list[str] = field(default_factory=list)
    silent_too_long: list[str] = field(default_factory=list)
    longest_ownerless: float = 0.0
    longest_silence: float = 0.0
    taken_by_pauses: list[str] = field(default_factory=list)
    lone_pauses: int | None = None
    miscommitted: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """One owner at a time, and soon; nothing lost; with transactions: nothing twice."""
        return not (
            self.failed
            or self.fatal
            or self.overlaps
            or self.strays
            or self.lost
            or self.late
            or self.ownerless_too_long
            or self.silent_too_long
            or self.taken_by_pauses
            or self.miscommitted
            or self.copied_twice
            or self.never_copied
        )

    @property
    def complete(self) -> bool:
        """All faults that were planned came."""
        return len(self.faults) >= int(self.plan["faults"])

    @property
    def session(self) -> timedelta:
        """Every member's ``session.timeout.ms``."""
        hours, minutes, seconds = self.plan["session"].split(":")
        return timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds))

    def born(self) -> dict[int, int]:
        """When partitions came that were not there at first."""
        widened = [(fault.at, _WIDENED.search(fault.what)) for fault in self.faults]
        return {int(found[1]) - 1: at for at, found in widened if found}

    def summary(self) -> str:
        """JSON without what is long."""
        long = ("faults", "ends", "committed")
        return json.dumps({k: v for k, v in asdict(self).items() if k not in long}, indent=1)

    def to_json(self) -> str:
        """All of it."""
        return json.dumps(asdict(self), indent=1)

    def hand_in(self, file: Path | None) -> int:
        """Ends a command: all of it into the file, if there is one, the summary to stdout.

        Returns:
            The exit status: 0 where the run was sound and complete.
        """
        if file:
            file.write_text(self.to_json() + "\n")
        sys.stdout.write(self.summary() + "\n")
        return 0 if self.sound and self.complete else 1

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`, once parsed. What is not in it has its default."""
        known = {k: v for k, v in values.items() if k in cls.__slots__}
        for name in ("ends", "committed"):
            if known.get(name) is not None:
                known[name] = {int(k): v for k, v in known[name].items()}
        if known.get("origin") is not None:
            known["origin"] = Origin(**known["origin"])
        known["faults"] = [_injected(fault) for fault in values["faults"]]
        return cls(**known)


def _injected(values: Mapping[str, Any]) -> Injected:
    roles = values.get("roles")
    return Injected(**{**values, "roles": None if roles is None else tuple(roles)})

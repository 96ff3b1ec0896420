"""Contestants take turns at leading the same group."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

from benchmarks.peers.franz import FranzPeer
from benchmarks.peers.java import JavaPeer
from benchmarks.peers.ours import OurPeer
from benchmarks.peers.wire import Peer, PeerError, PeerTimeoutError
from kafka_coop.types import Cluster

ASSIGNOR: Final = "cooperative-sticky"

OURS: Final = "kafka_coop"
FRANZ: Final = "franz-go"
JAVA: Final = "Java"

CONTESTANTS: Final[Mapping[str, Callable[[], Peer]]] = {
    OURS: OurPeer,
    FRANZ: FranzPeer,
    JAVA: JavaPeer,
}


@dataclass
class Result:
    """What one contestant made of one group.

    Attributes:
        seconds: Of each run, in order, by the clock that was asked for.
        memory: The most bytes its process had in memory, the group included.
        trouble: Why there is no figure, if there is none.
    """

    seconds: list[float] = field(default_factory=list)
    memory: int | None = None
    trouble: str = ""

    @property
    def best(self) -> float | None:
        """The shortest run: on a machine that others use too, the one disturbed least."""
        return min(self.seconds, default=None)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long to try, and by which clock.

    Attributes:
        clock: ``wall`` or ``cpu``; see `Took`.
        rounds: Turns each contestant gets.
        seconds: A turn goes on with further runs for this long.
        limit: A run that takes longer is given up.
    """

    clock: str = "wall"
    rounds: int
    seconds: float
    limit: float


def measure(
    names: list[str], cluster: Cluster, members: Mapping[str, bytes], patience: Patience
) -> dict[str, Result]:
    """Has each contestant lead the group in turn; each has a new process, warm by its first turn.

    Nothing but the runs is timed: the group is handed over and read before them.
    """
    results = {name: Result() for name in names}
    with ExitStack() as stack:
        peers: dict[str, Peer] = {}
        for name in names:
            with _trouble(results[name], patience):
                peer = stack.enter_context(CONTESTANTS[name]())
                peer.load(ASSIGNOR, cluster, members, own_user_data=True)
                peers[name] = peer
        for _ in range(patience.rounds):
            for name, peer in peers.items():
                with _trouble(results[name], patience):
                    _take_turn(peer, results[name], patience)
        for name, peer in peers.items():
            results[name].memory = peer.peak_memory()
    return results


def _take_turn(peer: Peer, result: Result, patience: Patience) -> None:
    if result.trouble:
        return
    until = time.monotonic() + patience.seconds
    while True:
        result.seconds.append(getattr(peer.run(limit=patience.limit), patience.clock))
        if time.monotonic() > until:
            return


@contextmanager
def _trouble(result: Result, patience: Patience) -> Iterator[None]:
    try:
        yield
    except PeerTimeoutError:
        result.trouble = f"> {patience.limit:g} s"
    except PeerError as error:
        result.trouble = "failed"
        print(error, file=sys.stderr)

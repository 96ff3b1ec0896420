"""Connections between processes and brokers: TCP's promises, and no more than these.

One connection keeps its order, both ways; different ones overtake each other. A broker answers
a connection's requests one after the other, so a parked JoinGroup holds up what follows it.
Nothing is duplicated. What may happen:

- a *cut* connection loses what is under way on it, in both directions;
- a connection that its client *closes* (a timeout, an aborted join, the process' end) still
  delivers what was sent before: the kernel goes on sending;
- a *partition* delays everything until it heals; whoever waits notices by his timeouts alone;
- a broker that is down resets every connection.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from kafka_coop.errors import ConnectionFailedError, RequestFailedError, RequestTimedOutError
from kafka_coop.protocol.messages import Response
from kafka_coop.simulation.agenda import Agenda
from kafka_coop.simulation.cluster import ClusterRequest, SimulatedCluster
from kafka_coop.simulation.group import RequestToken
from kafka_coop.simulation.rebalancing import Reply
from kafka_coop.simulation.settings import Client

Answer: TypeAlias = Response | RequestFailedError
OnAnswer: TypeAlias = Callable[[Answer], None]
Witness: TypeAlias = Callable[["Call", Response], None]

MAIN_LANE = "main"
JOIN_LANE = "join"

_RESET = ConnectionFailedError("the connection was reset")
_TIMED_OUT = RequestTimedOutError("no answer in time")


@dataclass(slots=True, eq=False)
class Call:
    """One request and where its answer goes.

    Attributes:
        abandoned: The client waits no more. The broker may still get to see it.
    """

    sender: str
    request: ClusterRequest
    on_answer: OnAnswer
    connection: Connection
    abandoned: bool = False


@dataclass(slots=True, eq=False)
class Connection:
    """One TCP connection, seen from both ends.

    Attributes:
        calls: What the client awaits an answer for, in order.
        inbox: What has reached the broker and waits for its turn.
        serving: What the broker works on.
        held: What a partition delays, in order: (is for the broker, call, response).
        reset: Nothing gets through any more.
    """

    client: Client
    sender: str
    node_id: int
    lane: str
    random: random.Random
    calls: list[Call] = field(default_factory=list)
    inbox: deque[Call] = field(default_factory=deque)
    serving: Call | None = None
    held: list[tuple[Call, Response | None]] = field(default_factory=list)
    last_up: float = 0.0
    last_down: float = 0.0
    closed: bool = False
    reset: bool = False


class Network:
    """All connections of a world.

    Attributes:
        latency: Seconds one way: the least, and what chance may add.
        slow: Process -> a factor on its latencies.
        down: Brokers that reset whatever reaches them.
    """

    def __init__(
        self,
        agenda: Agenda,
        cluster: SimulatedCluster,
        *,
        latency: tuple[float, float],
        witness: Witness,
    ) -> None:
        """Starts without connections.

        Args:
            agenda: Virtual time.
            cluster: The brokers.
            latency: As the attribute.
            witness: Sees every answer as it leaves its broker.
        """
        self.latency = latency
        self.slow: dict[str, float] = {}
        self.down: set[int] = set()
        self._agenda = agenda
        self._cluster = cluster
        self._witness = witness
        self._open: dict[tuple[str, int, str], Connection] = {}
        self._all: dict[str, list[Connection]] = {}
        self._parked: dict[RequestToken, Call] = {}
        self._tokens = 0
        self._partitions: dict[tuple[str, int], int] = {}

    # --- clients ---------------------------------------------------------------------------

    def send(
        self,
        client: Client,
        chance: random.Random,
        node_id: int,
        lane: str,
        request: ClusterRequest,
        *,
        sender: str,
        timeout: float,
        on_answer: OnAnswer,
    ) -> Call:
        """Sends a request; ``on_answer`` is called once, unless the client closes first."""
        key = (sender, node_id, lane)
        connection = self._open.get(key)
        if connection is None:
            connection = Connection(client, sender, node_id, lane, chance)
            self._open[key] = connection
            self._all.setdefault(sender, []).append(connection)
        call = Call(sender, request, on_answer, connection)
        connection.calls.append(call)
        arrives = max(self._agenda.now + self._latency(connection), connection.last_up)
        connection.last_up = arrives
        self._agenda.at(arrives, self._arrive, call)
        self._agenda.after(timeout, self._time_out, call)
        return call

    def waiting(self, sender: str, node_id: int, lane: str) -> int | None:
        """How many calls on a connection wait for their answers; None: there is no connection."""
        connection = self._open.get((sender, node_id, lane))
        return None if connection is None else len(connection.calls)

    def abort(self, call: Call) -> None:
        """The client closes a call's connection, unless it is answered; other calls on it fail."""
        if not call.abandoned:
            call.abandoned = True
            call.connection.calls.remove(call)
            self._close(call.connection, _RESET)

    def drop(self, sender: str, node_id: int, lane: str) -> None:
        """The client closes a connection on which it waits; without effect where it does not."""
        connection = self._open.get((sender, node_id, lane))
        if connection is not None and connection.calls:
            self._close(connection, _RESET)

    def forget(self, sender: str) -> None:
        """The process is gone. Its kernel closes its sockets; nobody hears the answers."""
        for connection in self._all.pop(sender, []):
            for call in connection.calls:
                call.abandoned = True
            connection.calls.clear()
            connection.closed = True
            connection.inbox.clear()
        self._open = {k: c for k, c in self._open.items() if k[0] != sender}

    # --- faults ----------------------------------------------------------------------------

    def cut(self, sender: str, *, lane: str | None = None, node_id: int | None = None) -> None:
        """Cuts a process' connections: what is under way on them is lost."""
        for connection in tuple(self._open.values()):
            if (
                connection.sender == sender
                and lane in (None, connection.lane)
                and node_id in (None, connection.node_id)
            ):
                self._reset(connection)

    def cut_broker(self, node_id: int) -> None:
        """The broker has died: all its connections are reset."""
        for connection in tuple(self._open.values()):
            if connection.node_id == node_id:
                self._reset(connection)

    def partition(self, sender: str, nodes: Iterable[int]) -> None:
        """Delays everything between a process and these brokers until `heal`."""
        for node_id in nodes:
            self._partitions[sender, node_id] = self._partitions.get((sender, node_id), 0) + 1

    def heal(self, sender: str, nodes: Iterable[int]) -> None:
        """Ends one `partition` of these."""
        for node_id in nodes:
            left = self._partitions.get((sender, node_id), 0) - 1
            if left > 0:
                self._partitions[sender, node_id] = left
            elif self._partitions.pop((sender, node_id), None) is not None:
                self._release(sender, node_id)

    def heal_all(self) -> None:
        """Ends every partition."""
        for sender, node_id in tuple(self._partitions):
            del self._partitions[sender, node_id]
            self._release(sender, node_id)

    def _release(self, sender: str, node_id: int) -> None:
        for connection in self._all.get(sender, ()):
            if connection.node_id != node_id:
                continue
            held, connection.held = connection.held, []
            for call, response in held:
                if response is None:
                    self._arrive(call)
                else:
                    self._answered(call, response)

    # --- brokers ---------------------------------------------------------------------------

    def deliver(self, replies: Iterable[Reply]) -> None:
        """Sends answers off; those nobody has asked for any more vanish."""
        waiting = deque(replies)
        while waiting:
            reply = waiting.popleft()
            call = self._parked.pop(reply.token, None)
            if call is None:
                continue
            connection = call.connection
            connection.serving = None
            self._witness(call, reply.response)
            if not call.abandoned and not connection.reset:
                arrives = max(self._agenda.now + self._latency(connection), connection.last_down)
                connection.last_down = arrives
                self._agenda.at(arrives, self._answered, call, reply.response)
            if connection.inbox and not connection.reset:
                waiting.extend(self._serve(connection))

    def _serve(self, connection: Connection) -> list[Reply]:
        call = connection.serving = connection.inbox.popleft()
        self._tokens += 1
        token = RequestToken(self._tokens)
        self._parked[token] = call
        return self._cluster.handle(
            connection.node_id,
            call.request,
            client=connection.client,
            token=token,
            now=self._agenda.now,
        )

    # --- under way -------------------------------------------------------------------------

    def _arrive(self, call: Call) -> None:
        connection = call.connection
        if connection.reset:
            return
        if (connection.sender, connection.node_id) in self._partitions:
            connection.held.append((call, None))
            return
        if connection.node_id in self.down:
            self._reset(connection)
            return
        if connection.serving is not None and connection.closed:
            return  # unread behind a parked request when the connection ended
        connection.inbox.append(call)
        if connection.serving is None:
            self.deliver(self._serve(connection))

    def _answered(self, call: Call, response: Response) -> None:
        connection = call.connection
        if call.abandoned or connection.reset:
            return
        if (connection.sender, connection.node_id) in self._partitions:
            connection.held.append((call, response))
            return
        connection.calls.remove(call)
        call.abandoned = True
        call.on_answer(response)

    def _time_out(self, call: Call) -> None:
        if call.abandoned:
            return
        call.connection.calls.remove(call)
        call.abandoned = True
        self._close(call.connection, _RESET)
        call.on_answer(_TIMED_OUT)

    def _reset(self, connection: Connection) -> None:
        connection.reset = True
        connection.held.clear()
        self._close(connection, _RESET)

    def _close(self, connection: Connection, error: RequestFailedError) -> None:
        connection.closed = True
        connection.inbox.clear()
        self._open.pop((connection.sender, connection.node_id, connection.lane), None)
        failed, connection.calls = connection.calls, []
        for call in failed:
            call.abandoned = True
        for call in failed:
            self._agenda.after(0.0, call.on_answer, error)

    def _latency(self, connection: Connection) -> float:
        least, more = self.latency
        spread = least + more * connection.random.random()
        return spread * self.slow.get(connection.sender, 1.0) if self.slow else spread

"""A simulated cluster: brokers, topics, and the group coordinator that lives on one of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import TypeAlias

from kafka_coop.protocol.error_codes import ErrorCode
from kafka_coop.protocol.messages import (
    ClusterMetadata,
    CoordinatorFound,
    FindCoordinator,
    GetMetadata,
    ListedOffset,
    ListOffsets,
    Node,
    OffsetsListed,
    PartitionMetadata,
    Response,
    TopicMetadata,
)
from kafka_coop.simulation.coordinator import GroupCoordinator, GroupRequest, first, refuse
from kafka_coop.simulation.group import Pick, RequestToken
from kafka_coop.simulation.rebalancing import Reply
from kafka_coop.simulation.settings import Client, CoordinatorSettings
from kafka_coop.simulation.topics import Topics
from kafka_coop.types import TopicPartition

ClusterRequest: TypeAlias = GroupRequest | FindCoordinator | GetMetadata | ListOffsets


class SimulatedCluster:
    """Brokers with one coordinator for all groups, in virtual time (seconds).

    Every partition has a replica on every broker; its leaders are spread in turn, and the next
    broker alive leads where one is down. Topics are never created by asking for them
    (``auto.create.topics.enable=false``).

    Attributes:
        topics: What exists. Delete by `delete_topic`, which takes the offsets along.
        coordinator: The groups. Reach it by `handle`, which knows on which broker it lives.
        changes: Counts whatever may have moved `next_deadline`.
    """

    def __init__(
        self,
        *,
        brokers: int = 1,
        racks: Mapping[int, str] | None = None,
        settings: CoordinatorSettings | None = None,
        pick: Pick = first,
    ) -> None:
        """Starts with all brokers up and the coordinator on the first, number 1.

        Args:
            brokers: How many; they are numbered from 1.
            racks: Broker number -> rack.
            settings: The brokers'; None: their defaults.
            pick: As `GroupCoordinator` takes it.
        """
        self.topics = Topics()
        self.coordinator = GroupCoordinator(topics=self.topics, settings=settings, pick=pick)
        self.changes = 0
        self._nodes = {
            number: Node(node_id=number, host=f"broker-{number}", port=9092)
            for number in range(1, brokers + 1)
        }
        self._racks = dict(racks or {})
        self._down: set[int] = set()
        self._coordinator_node: int | None = 1
        self._held: dict[int, Mapping[str, int]] = {}
        self._described: dict[tuple[str, int], TopicMetadata] = {}
        self._described_without: set[int] = set()

    # --- requests and time -----------------------------------------------------------------

    def handle(
        self,
        node_id: int,
        request: ClusterRequest,
        *,
        client: Client,
        token: RequestToken,
        now: float,
    ) -> list[Reply]:
        """Takes one request in at a broker; see `GroupCoordinator.handle`.

        Raises:
            ValueError: The broker is down, so that nothing could have reached it; or ``now``
                lies before an earlier call's.
        """
        if node_id in self._down:
            raise ValueError(f"broker {node_id} is down")
        response: Response
        match request:
            case FindCoordinator():
                response = self._find_coordinator(request)
            case GetMetadata():
                response = self._metadata(node_id, request)
            case ListOffsets():
                response = self._list_offsets(node_id, request)
            case _ if node_id == self._coordinator_node:
                self.changes += 1
                return self.coordinator.handle(request, client=client, token=token, now=now)
            case _ if request.group_id in self.coordinator.denied:
                response = refuse(request, ErrorCode.group_authorization_failed)
            case _:
                response = refuse(request, ErrorCode.not_coordinator)
        replies = self.coordinator.advance(now)
        return [*replies, Reply(token=token, response=response, at=now)]

    def advance(self, now: float) -> list[Reply]:
        """Lets time pass; see `GroupCoordinator.advance`."""
        self.changes += 1
        return self.coordinator.advance(now)

    def next_deadline(self) -> float | None:
        """When `advance` has something to do next; None: only a request can change anything."""
        return self.coordinator.next_deadline()

    # --- faults and changes ----------------------------------------------------------------

    @property
    def coordinator_node(self) -> int | None:
        """The broker that the coordinator lives on, loading or not; None: no broker."""
        return self._coordinator_node

    def move_coordinator(
        self, to: int | None, now: float, *, loading: timedelta = timedelta(0)
    ) -> list[Reply]:
        """Hands the groups over to another broker (or the same one again), or to none.

        Args:
            to: None: no broker leads the groups' log; FindCoordinator answers
                COORDINATOR_NOT_AVAILABLE.
            now: Virtual time, seconds.
            loading: How long the new broker reads the log.

        Returns:
            What the old broker answers to parked requests: NOT_COORDINATOR.

        Raises:
            ValueError: That broker is down.
        """
        if to in self._down:
            raise ValueError(f"broker {to} is down")
        self.changes += 1
        self._coordinator_node = to
        if to is None:
            return self.coordinator.resign(now)
        return self.coordinator.load(now, duration=loading)

    def fail_broker(self, node_id: int, now: float) -> list[Reply]:
        """A broker dies, and its connections with it.

        Where it was the coordinator, what was parked there is lost unanswered, and no broker
        is, until `move_coordinator`.

        Returns:
            Answers that deadlines up to ``now`` gave while it lived.
        """
        self.changes += 1
        replies = self.coordinator.advance(now)
        self._down.add(node_id)
        if self._coordinator_node == node_id:
            self._coordinator_node = None
            self.coordinator.resign(now)
        return replies

    def restart_broker(self, node_id: int) -> None:
        """The broker is back, as no one's coordinator."""
        self._down.discard(node_id)

    def delete_topic(self, topic: str) -> None:
        """Deletes a topic, its logs, and every group's offsets of it.

        Raises:
            KeyError: There is no such topic.
        """
        self.topics.delete(topic)
        self.coordinator.drop_topic(topic)

    def hold_metadata(self, node_id: int) -> None:
        """From now on this broker answers GetMetadata with the topics of this moment.

        Brokers learn of changes one by one: a client that asks them in turn sees the number of
        partitions go back and forth (KAFKA-9815).
        """
        self._held[node_id] = self.topics.counts()

    def release_metadata(self, node_id: int) -> None:
        """The broker has caught up."""
        self._held.pop(node_id, None)

    # --- answers ---------------------------------------------------------------------------

    def _find_coordinator(self, request: FindCoordinator) -> CoordinatorFound:
        if request.group_id in self.coordinator.denied:
            return CoordinatorFound(error=ErrorCode.group_authorization_failed)
        if self._coordinator_node is None:
            return CoordinatorFound(error=ErrorCode.coordinator_not_available)
        return CoordinatorFound(error=ErrorCode.none, node=self._nodes[self._coordinator_node])

    def _metadata(self, node_id: int, request: GetMetadata) -> ClusterMetadata:
        counts = self._held.get(node_id)
        if counts is None:
            counts = self.topics.counts()
        wanted: Iterable[str] = counts if request.topics is None else request.topics
        alive = {n: node for n, node in self._nodes.items() if n not in self._down}
        if self._described_without != self._down:
            self._described, self._described_without = {}, set(self._down)
        return ClusterMetadata(
            brokers=alive,
            racks={n: self._racks.get(n) for n in alive},
            topics={topic: self._topic(topic, counts.get(topic)) for topic in wanted},
            cluster_id="simulated",
            controller_id=min(alive, default=-1),
        )

    def _topic(self, topic: str, partitions: int | None) -> TopicMetadata:
        if partitions is None:
            return TopicMetadata(name=topic, error=ErrorCode.unknown_topic_or_partition)
        known = self._described.get((topic, partitions))
        if known is not None:
            return known
        described = self._described[topic, partitions] = TopicMetadata(
            name=topic,
            partitions=tuple(
                PartitionMetadata(
                    partition=index,
                    leader_id=self._leader(index),
                    replica_nodes=tuple(self._nodes),
                )
                for index in range(partitions)
            ),
        )
        return described

    def _leader(self, partition: int) -> int:
        """The broker that leads this partition of every topic; at least one is up."""
        numbers = list(self._nodes)
        turn = partition % len(numbers)
        in_turn = numbers[turn:] + numbers[:turn]
        return next(n for n in in_turn if n not in self._down)

    def _list_offsets(self, node_id: int, request: ListOffsets) -> OffsetsListed:
        return OffsetsListed(
            offsets={
                partition: self._list_offset(node_id, partition, timestamp, request)
                for partition, timestamp in request.timestamps.items()
            }
        )

    def _list_offset(
        self, node_id: int, partition: TopicPartition, timestamp: int, request: ListOffsets
    ) -> ListedOffset:
        if self.topics.exists(partition) and self._leader(partition.partition) != node_id:
            return ListedOffset(offset=-1, error=ErrorCode.not_leader_or_follower)
        return self.topics.list_offset(partition, timestamp, read_committed=request.read_committed)

"""One look at a group, through the administration client."""

from __future__ import annotations

import contextlib
import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from confluent_kafka import (
    ConsumerGroupType,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
)
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined]  # its stubs hide it

from kafka_coop.cli.connection import Connection
from kafka_coop.cli.exits import CommandError, Exit
from kafka_coop.cli.group import GroupLook, MemberLook, look_at_member, named
from kafka_coop.fetching.native import told_offset
from kafka_coop.hopeless import HOPELESS
from kafka_coop.printable import shown
from kafka_coop.protocol.messages import address
from kafka_coop.types import MAX_STRING_BYTES, Cluster, Partitions, TopicPartition

_GONE: Final = "Dead"
_CONSUMERS: Final = ("consumer", "")
"""Types of classic groups of consumers; one that only ever committed has none."""
_TOPICS_AT_ONCE: Final = 500
_UNTOLD: Final = "all brokers are asked for subscriptions and user data, and some do not answer"
"""The rest is what the group's coordinator tells."""


def look(connection: Connection, group_id: str) -> GroupLook:
    """Looks at a group.

    Raises:
        CommandError: There is no such group, it is of a kind without partitions to assign, or
            no broker answers.
    """
    _require_name(group_id)
    # First: it fails where the coordinator does not answer, and nothing worse. Librdkafka 2.16 ends
    # the process by an assertion where a description is asked for of a coordinator that is away.
    committed, unread = _committed(connection, group_id)
    described = _describe(connection, group_id)
    state = _words(described.state)
    if state == _GONE:
        raise _missing(connection, group_id)
    kind = "consumer" if described.type is ConsumerGroupType.CONSUMER else "classic"
    members, untold = _described_members(described.members), ""
    if kind == "classic":
        try:
            state, members = _classic_members(connection, group_id, described.members)
        except CommandError as error:
            if error.status is not Exit.UNREACHABLE:
                raise
            untold = _UNTOLD
    if state == _GONE:
        raise _missing(connection, group_id)
    topics = {t for m in members if m.subscription is not None for t in m.subscription.topics}
    topics |= {p.topic for m in members for p in m.assigned} | {p.topic for p in committed}
    racks = any(m.subscription is not None and m.subscription.rack for m in members)
    cluster = _cluster(connection, topics, racks=racks)
    ends, unreadable = _ends(connection, cluster, committed)
    return GroupLook(
        id=group_id,
        state=state,
        kind=kind,
        assignor=described.partition_assignor or "",
        coordinator=_node(described.coordinator),
        members=named(members),
        cluster=cluster,
        committed=committed,
        ends=ends,
        untold=untold,
        unread=unread or unreadable,
    )


def _require_name(group_id: str) -> None:
    """A consumer of confluent's ends the process over a name that is none."""
    if not group_id:
        raise CommandError("the group's name is empty", Exit.USAGE)
    try:
        size = len(group_id.encode())
    except UnicodeEncodeError as error:
        raise CommandError(f"group {group_id!r}: {error}", Exit.USAGE) from None
    if size > MAX_STRING_BYTES or "\0" in group_id:
        raise CommandError(f"no group has such a name: {group_id[:50]!r} …", Exit.USAGE)


def group_names(connection: Connection) -> list[str]:
    """Every consumer group's name.

    Raises:
        CommandError: No broker answers, or one can't tell its groups: it is still loading them,
            as a rule. A list without them would look like the whole.
    """
    names, failed = _listed(connection)
    if failed is not None:
        status = Exit.UNAUTHORISED if failed.code() in HOPELESS else Exit.UNREACHABLE
        raise CommandError(f"not all groups can be listed: {failed.str()}", status)
    return names


def _listed(connection: Connection) -> tuple[list[str], KafkaError | None]:
    """Consumer groups' names, and why they may not be all."""
    try:
        listed = connection.result(connection.admin.list_consumer_groups())
    except KafkaException as error:
        return [], error.args[0]
    errors: list[Any] = listed.errors or []  # KafkaErrors, whatever its stubs say
    names = sorted(group.group_id for group in listed.valid or ())
    return names, errors[0] if errors else None


def _describe(connection: Connection, group_id: str) -> Any:
    try:
        asked = connection.admin.describe_consumer_groups(
            [group_id], request_timeout=connection.timeout
        )
        return connection.result(asked[group_id])
    except KafkaException as error:
        failed = error.args[0]
        if failed.code() == KafkaError._INVALID_ARG:  # noqa: SLF001  # librdkafka's code
            raise CommandError(
                f"group {group_id!r} holds no consumers: {failed.str()}", Exit.WRONG_KIND
            ) from None
        if failed.code() == KafkaError.GROUP_ID_NOT_FOUND:
            raise _missing(connection, group_id) from None
        raise CommandError(f"group {group_id!r}: {failed.str()}", Exit.UNREACHABLE) from None


def _missing(connection: Connection, group_id: str) -> CommandError:
    """No consumer group of that name: another kind of group, a misspelling, or nothing."""
    names: list[str] = []
    others: Sequence[Any] = ()
    with contextlib.suppress(CommandError):  # its coordinator knows of none, whoever is silent
        names, _ = _listed(connection)
        others = () if group_id in names else connection.groups(group_id)
    if others:
        return CommandError(
            f"group {group_id!r} is neither classic nor of type consumer (a share or streams"
            " group): its partitions are not assigned to members",
            Exit.WRONG_KIND,
        )
    alike = difflib.get_close_matches(group_id, names, n=3, cutoff=0.5)
    hint = f"; there is {', '.join(map(repr, alike))}" if alike else ""
    return CommandError(f"no group {group_id!r} at {connection.servers}{hint}", Exit.NO_SUCH_GROUP)


def _classic_members(
    connection: Connection, group_id: str, described: Iterable[Any]
) -> tuple[str, list[MemberLook]]:
    """Members with their own bytes, which brokers show while the group is stable.

    The state is of the same answer: a rebalance between two requests would mix two groups.

    Raises:
        CommandError: A broker refuses, it holds no consumers, or its coordinator's answer is not
            among those that came: the last broker's decides whether librdkafka has them fail.
    """
    instance_ids = {m.member_id: m.group_instance_id for m in described}
    answers = connection.groups(group_id)
    if not answers:
        raise CommandError(f"group {group_id!r} is not told", Exit.UNREACHABLE)
    for found in answers:
        if found.protocol_type not in _CONSUMERS:
            # librdkafka's description tells by the members, and there may be none any more.
            raise CommandError(
                f"group {group_id!r} holds no consumers: its type is {found.protocol_type!r}",
                Exit.WRONG_KIND,
            )
    members = [
        look_at_member(
            member_id=member.id,
            client_id=member.client_id,
            host=member.client_host,
            metadata=bytes(member.metadata or b""),
            assignment=bytes(member.assignment or b""),
            instance_id=instance_ids.get(member.id) or None,
        )
        for found in answers
        for member in found.members
    ]
    return next((found.state for found in answers if found.state != _GONE), _GONE), members


def _described_members(described: Iterable[Any]) -> list[MemberLook]:
    """Members without their bytes, of which a group of type consumer has none."""
    return [
        MemberLook(
            id=member.member_id,
            name=shown(member.client_id or member.member_id),
            client_id=member.client_id,
            host=member.host.lstrip("/"),
            instance_id=member.group_instance_id or None,
            assigned=_given(member.assignment),
            target=None if member.target_assignment is None else _given(member.target_assignment),
        )
        for member in described
    ]


def _given(assignment: Any) -> Partitions:
    return Partitions.of((p.topic, p.partition) for p in assignment.topic_partitions)


def _committed(
    connection: Connection, group_id: str
) -> tuple[dict[TopicPartition, int], str | None]:
    """The group's offsets, or why they can't be read."""
    try:
        return connection.committed(group_id), None
    except KafkaException as error:
        return {}, f"the group's offsets can't be read: {error.args[0].str()}"


def _cluster(connection: Connection, topics: set[str], *, racks: bool) -> Cluster:
    known = connection.metadata().topics
    counts = {t: len(known[t].partitions) for t in sorted(topics) if t in known}
    return Cluster(
        partitions={t: n for t, n in counts.items() if n},
        replica_racks=_racks(connection, [t for t, n in counts.items() if n]) if racks else None,
    )


def _racks(connection: Connection, topics: Sequence[str]) -> dict[str, tuple[tuple[str, ...], ...]]:
    """Each partition's racks, for strategies that go by them (KIP-881)."""
    racks: dict[str, tuple[tuple[str, ...], ...]] = {}
    for at in range(0, len(topics), _TOPICS_AT_ONCE):
        some = list(topics[at : at + _TOPICS_AT_ONCE])
        asked = connection.admin.describe_topics(
            TopicCollection(some), request_timeout=connection.timeout
        )
        for topic, future in asked.items():
            try:
                partitions = connection.result(future).partitions
            except KafkaException:  # deleted since, or not ours to see
                continue
            racks[topic] = tuple(
                tuple(sorted({n.rack for n in p.replicas if n.rack})) for p in partitions
            )
    return racks


def _ends(
    connection: Connection, cluster: Cluster, committed: Iterable[TopicPartition]
) -> tuple[dict[TopicPartition, int], str | None]:
    """Where the committed partitions' logs end, as a reader of committed records sees it."""
    wanted: Mapping[ConfluentPartition, OffsetSpec] = {
        ConfluentPartition(p.topic, p.partition): OffsetSpec.latest()  # type: ignore[no-untyped-call]
        for p in committed
        if p.partition < cluster.partitions.get(p.topic, 0)
    }
    if not wanted:
        return {}, None
    asked = connection.admin.list_offsets(
        dict(wanted),
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=connection.timeout,
    )
    ends: dict[TopicPartition, int] = {}
    failed: str | None = None
    for partition, future in asked.items():
        try:
            end = told_offset(connection.result(future))
        except KafkaException as error:
            failed = f"some logs' ends can't be read: {error.args[0].str()}"
        else:
            ends[TopicPartition(partition.topic, partition.partition)] = end
    return ends, failed


def _words(state: Any) -> str:
    """The broker's own spelling: PreparingRebalance."""
    return "".join(word.capitalize() for word in state.name.split("_")).replace(
        "Rebalancing", "Rebalance"
    )


def _node(node: Any) -> str:
    return "" if node is None else f"{address(node.host, node.port)} (broker {node.id})"

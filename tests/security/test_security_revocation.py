"""A right to the group is taken away from a living member."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AclOperation, ResourceType  # type: ignore[attr-defined]  # hidden by its stubs
from integration_support import PATIENCE, Member, code, members, unique, until
from security_members import has_read_everything, login, member, publish
from security_support import PASSWORD, TOPIC, Provider, Right, allow, forbid, set_password

from kafka_coop.testing.local import LocalKafka

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(300), pytest.mark.xdist_group("security")]

SOON = 30.0
"""Seconds; the session is over after six."""


TO_THE_TOPIC: Right = (ResourceType.TOPIC, TOPIC, AclOperation.READ)


def a_user(kafka: LocalKafka, *rights: Right) -> str:
    """Its name."""
    user = unique("user")
    set_password(kafka, PASSWORD, user)
    allow(kafka, user, *rights)
    return user


def a_member(kafka: LocalKafka, oidc: Provider) -> tuple[Member, str, Right]:
    """One that may join its group as yet, its name there, and the right."""
    group = unique("g")
    right = (ResourceType.GROUP, group, AclOperation.READ)
    user = a_user(kafka, right, TO_THE_TOPIC)
    one = member(kafka, login(oidc, "SCRAM-SHA-256", user), group)
    return one, user, right


def is_denied(error: BaseException) -> bool:
    return code(error) == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_a_member_hears_that_its_right_is_gone_and_goes_on_once_it_is_back(
    guarded: LocalKafka, oidc: Provider
) -> None:
    """As Java's: heartbeats go on until its session is over, then poll raises; a commit at once."""
    one, user, right = a_member(guarded, oidc)
    with members(one):
        until(lambda: len(one.owned) == 2 and has_read_everything(guarded, one), one)
        forbid(guarded, user, right)
        with pytest.raises(KafkaException) as refused:
            one.consumer.commit(asynchronous=False)
        assert is_denied(refused.value)
        until(lambda: bool(one.raised), one, within=SOON)
        assert is_denied(one.raised[0])
        assert "grant READ on the group" in str(one.raised[0])
        publish(guarded, 0, 1)
        allow(guarded, user, right)
        until(lambda: len(one.owned) == 2 and has_read_everything(guarded, one), one)
        assert all(map(is_denied, one.raised))
        assert [kind for kind, _ in one.told] == ["assigned", "lost", "assigned"]
        one.consumer.commit(asynchronous=False)
        both = [TopicPartition(TOPIC, partition) for partition in (0, 1)]
        found = one.consumer.committed(both, timeout=PATIENCE)
        assert {p.partition: p.offset for p in found} == guarded.end_offsets(TOPIC)


def test_a_partition_is_read_once_the_right_to_its_topic_is_there(
    guarded: LocalKafka, oidc: Provider
) -> None:
    """It stood still from then on, unread, for as long as its owner kept it."""
    one, _, right = a_member(guarded, oidc)
    with members(one):
        until(lambda: len(one.owned) == 2 and has_read_everything(guarded, one), one)
        user = a_user(guarded, right)
        other = member(guarded, login(oidc, "SCRAM-SHA-256", user), one.group)
        with members(other):
            until(lambda: any(m.partition() is not None for m in other.errors), one, other)
            of = next(p for m in other.errors if (p := m.partition()) is not None)
            publish(guarded, of)
            allow(guarded, user, TO_THE_TOPIC)
            latest = guarded.end_offsets(TOPIC)[of] - 1
            until(lambda: (TOPIC, of, latest) in other.records, one, other, within=SOON)
            refused = [m for m in other.errors if m.partition() is not None]
            (told,) = (m.error() for m in refused)
            assert told is not None
            assert told.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_member_without_its_right_is_closed_in_time(guarded: LocalKafka, oidc: Provider) -> None:
    one, user, right = a_member(guarded, oidc)
    with members(one):
        until(lambda: len(one.owned) == 2 and has_read_everything(guarded, one), one)
        forbid(guarded, user, right)
        until(lambda: bool(one.raised), one, within=SOON)
        began = time.monotonic()
        one.consumer.close()
        assert time.monotonic() - began < SOON
        assert not one.balance()

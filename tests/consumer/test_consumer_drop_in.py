"""CoopConsumer takes confluent_kafka.Consumer's place: methods, parameters, exceptions."""

from __future__ import annotations

import ast
import inspect
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from prometheus_client import CollectorRegistry

from kafka_coop import CoopConsumer, RebalanceListener
from kafka_coop.client.subscribing import split_topics
from kafka_coop.kafka_errors import ConfigurationException
from kafka_coop.listener import chosen_listener
from kafka_coop.partitions import PartitionResult

CONFIG: dict[str, Any] = {"bootstrap.servers": "127.0.0.1:9", "group.id": "g", "log_level": 0}
PUBLIC = sorted(name for name in vars(Consumer) if not name.startswith("_"))
STUBS = Path(confluent_kafka.__file__).with_name("cimpl.pyi")

Method = list[tuple[str, object]]
"""A method's parameters and their defaults, self left out."""


def _stubbed() -> dict[str, Method]:
    """The methods of Consumer as confluent's type stubs have them, overloads left out."""
    (stub,) = (
        node
        for node in ast.parse(STUBS.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "Consumer"
    )
    methods: dict[str, Method] = {}
    for node in stub.body:
        if isinstance(node, ast.FunctionDef) and not node.decorator_list:
            names = [a.arg for a in node.args.args][1:]
            defaults: list[object] = [ast.literal_eval(d) for d in node.args.defaults]
            required: list[object] = [inspect.Parameter.empty] * (len(names) - len(defaults))
            methods[node.name] = list(zip(names, required + defaults, strict=True))
    return methods


STUBBED = _stubbed()


@pytest.fixture
def ours() -> Iterator[CoopConsumer]:
    with CoopConsumer(CONFIG, registry=CollectorRegistry()) as consumer:
        yield consumer


@pytest.fixture
def theirs() -> Iterator[Consumer]:
    consumer = Consumer(CONFIG)
    yield consumer
    consumer.close()


def test_the_stubs_are_read() -> None:
    assert {"poll", "subscribe", "committed", "close"} <= STUBBED.keys()


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_method_is_there(name: str) -> None:
    assert callable(getattr(CoopConsumer, name, None)), name


@pytest.mark.parametrize("name", sorted(STUBBED.keys() - {"__exit__"}))
def test_every_parameter_is_there_in_its_place_with_its_default(name: str) -> None:
    found = [
        (p.name, p.default)
        for p in inspect.signature(getattr(CoopConsumer, name)).parameters.values()
        if p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
    ][1:]
    assert found[: len(STUBBED[name])] == STUBBED[name]
    # What we add may not be in the way: it has a default.
    assert all(default is not inspect.Parameter.empty for _, default in found[len(STUBBED[name]) :])


def test_commit_takes_its_arguments_by_name_and_by_place() -> None:
    """Its stubs are overloads: message, offsets, asynchronous, in confluent's C source."""
    parameters = inspect.signature(CoopConsumer.commit).parameters
    assert [(p.name, p.default) for p in parameters.values()][1:] == [
        ("message", None),
        ("offsets", None),
        ("asynchronous", True),
    ]


class _Half:
    """A listener of somebody's own, without on_lost."""

    def on_partitions_assigned(self, *_: object) -> None:
        pass

    on_partitions_revoked = on_partitions_assigned


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda c: c.subscribe(["t"], listener=5), r"got 5 without on_partitions_assigned\(\)"),
        (lambda c: c.subscribe(["t"], listener=_Half()), r"without on_partitions_lost\(\): derive"),
        (lambda c: c.subscribe(["t"], listener=_Half(), on_assign=print), "takes either listener="),
        (lambda c: c.subscribe(["t"], on_lost=5), "on_lost expects a callable, got 5"),
        (lambda c: c.health(max_lag="5"), "max_lag expects a number of records, got '5'"),
    ],
)
def test_what_only_ours_takes_is_looked_at_too(
    ours: CoopConsumer, call: Callable[[Any], object], told: str
) -> None:
    with pytest.raises(TypeError, match=told):
        call(ours)
    assert ours.subscription() == []


def test_a_listener_that_is_false_is_one() -> None:
    class Empty(RebalanceListener):
        def __len__(self) -> int:
            return 0

    listener = Empty()
    assert chosen_listener(listener, None, None, None) is listener


@pytest.mark.parametrize("name", ["\ud800", "t" * 40_000, "no\0name"])
def test_a_name_that_no_request_can_say_is_refused(name: str) -> None:
    with pytest.raises(KafkaException) as refused:
        split_topics([name])
    assert refused.value.args[0].code() == KafkaError._INVALID_ARG


@pytest.mark.parametrize("asynchronous", [True, False])
def test_metadata_that_no_request_can_say_is_refused(
    ours: CoopConsumer, asynchronous: bool
) -> None:
    """Brokers cut the connection: for a minute it was sent again and again, and all behind it."""
    long = [TopicPartition("t", 0, 1, metadata="m" * 40_000)]
    with pytest.raises(ValueError, match=r"t\[0\] has 40000 bytes"):
        ours.commit(offsets=long, asynchronous=asynchronous)


# --- the same wrong call, the same exception -----------------------------------------------------

THERE = [TopicPartition("t", 0, 0)]

WRONG: dict[str, Callable[[Any], object]] = {
    "subscribe without a list": lambda c: c.subscribe("t"),
    "subscribe without topics": lambda c: c.subscribe(),
    "subscribe to a generator": lambda c: c.subscribe(t for t in ["t"]),
    "a callback that is none": lambda c: c.subscribe(["t"], on_assign=7),
    "assign without a list": lambda c: c.assign("t"),
    "assign a generator": lambda c: c.assign(iter(THERE)),
    "incremental_assign a generator": lambda c: c.incremental_assign(iter(THERE)),
    "pause a generator": lambda c: c.pause(iter(THERE)),
    "commit a generator": lambda c: c.commit(offsets=iter(THERE)),
    "times of a generator": lambda c: c.offsets_for_times(iter(THERE)),
    "assign numbers": lambda c: c.assign([1]),
    "incremental_assign numbers": lambda c: c.incremental_assign([1]),
    "incremental_unassign numbers": lambda c: c.incremental_unassign([1]),
    "seek to a number": lambda c: c.seek(1),
    "pause without a list": lambda c: c.pause("t"),
    "resume numbers": lambda c: c.resume([1]),
    "position of numbers": lambda c: c.position([1]),
    "committed of numbers": lambda c: c.committed([1]),
    "commit with both": lambda c: c.commit(message=1, offsets=THERE),
    "commit numbers": lambda c: c.commit(offsets=[1]),
    "commit a message that is none": lambda c: c.commit(message=1),
    "consume less than nothing": lambda c: c.consume(-1),
    "consume too much": lambda c: c.consume(1_000_001),
    "poll for a word": lambda c: c.poll("soon"),
    "consume for a word": lambda c: c.consume(1, "soon"),
    "watermarks of a number": lambda c: c.get_watermark_offsets(1),
    "times of numbers": lambda c: c.offsets_for_times([1]),
    "store with automatic storing": lambda c: c.store_offsets(offsets=THERE),
    "commit without offsets": lambda c: c.commit(asynchronous=False),
    "commit without offsets later": lambda c: c.commit(),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_calls_raise_what_confluents_raise(
    ours: CoopConsumer, theirs: Consumer, name: str
) -> None:
    assert raised_by(WRONG[name], ours) == raised_by(WRONG[name], theirs)


def raised_by(call: Callable[[Any], object], consumer: object) -> tuple[str, int | None]:
    """The exception's kind, and its code where it has one."""
    try:
        call(consumer)
    except KafkaException as error:
        return "KafkaException", error.args[0].code()
    except (TypeError, ValueError, RuntimeError) as error:
        return type(error).__name__, None
    return "nothing", None


@pytest.mark.parametrize(
    "lets_go",
    [lambda c: c.assign([]), lambda c: c.incremental_unassign(THERE)],
    ids=["assign nothing", "incremental_unassign"],
)
@pytest.mark.parametrize("made", ["ours", "theirs"])
def test_with_nothing_left_that_was_assigned_by_hand_one_may_subscribe(
    request: pytest.FixtureRequest, made: str, lets_go: Callable[[Any], object]
) -> None:
    consumer = request.getfixturevalue(made)
    consumer.assign(THERE)
    lets_go(consumer)
    consumer.subscribe(["t"])


def test_a_subscription_that_is_refused_is_none() -> None:
    """Python knows lookahead, and librdkafka, which is asked behind it, does not."""
    config = {**CONFIG, "group.protocol": "consumer"}
    with CoopConsumer(config, registry=CollectorRegistry()) as consumer:
        with pytest.raises(KafkaException, match=r"_INVALID_ARG"):
            consumer.subscribe(["^x-(?!a).*"])
        consumer.assign([])  # which a subscription would keep from being done


AFTER_CLOSE: dict[str, Callable[[Any], object]] = {
    "subscribe": lambda c: c.subscribe(["t"]),
    "unsubscribe": lambda c: c.unsubscribe(),
    "poll": lambda c: c.poll(0),
    "consume": lambda c: c.consume(1, 0),
    "commit": lambda c: c.commit(),
    "assign": lambda c: c.assign(THERE),
    "unassign": lambda c: c.unassign(),
    "incremental_assign": lambda c: c.incremental_assign(THERE),
    "incremental_unassign": lambda c: c.incremental_unassign(THERE),
    "assignment": lambda c: c.assignment(),
    "committed": lambda c: c.committed(THERE),
    "position": lambda c: c.position(THERE),
    "seek": lambda c: c.seek(THERE[0]),
    "store_offsets": lambda c: c.store_offsets(offsets=THERE),
    "get_watermark_offsets": lambda c: c.get_watermark_offsets(THERE[0]),
    "offsets_for_times": lambda c: c.offsets_for_times(THERE),
    "list_topics": lambda c: c.list_topics(timeout=0.1),
    "memberid": lambda c: c.memberid(),
    "consumer_group_metadata": lambda c: c.consumer_group_metadata(),
    "close again": lambda c: c.close(),
}


@pytest.mark.parametrize("name", AFTER_CLOSE)
def test_after_close_the_same_as_confluents(
    ours: CoopConsumer, theirs: Consumer, name: str
) -> None:
    ours.close()
    theirs.close()
    assert raised_by(AFTER_CLOSE[name], ours) == raised_by(AFTER_CLOSE[name], theirs)


# --- construction --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({**CONFIG, "no.such.key": 1}, "no.such.key"),
        ({**CONFIG, "auto.offset.reset": "sometimes"}, "auto.offset.reset"),
        ({**CONFIG, "session.timeout.ms": "soon"}, "session.timeout.ms"),
        ({key: value for key, value in CONFIG.items() if key != "group.id"}, "group.id"),
    ],
)
def test_a_wrong_configuration_raises_what_confluents_raises(
    config: dict[str, Any], key: str
) -> None:
    """Ours is a ValueError too, as confluent's is where group.id is missing, and has the key."""
    with pytest.raises((KafkaException, ValueError)) as theirs:
        Consumer(config)
    with pytest.raises(type(theirs.value)) as ours:
        CoopConsumer(config, registry=CollectorRegistry())
    assert isinstance(ours.value, ConfigurationException)
    assert isinstance(ours.value, KafkaException)
    assert isinstance(ours.value, ValueError)
    assert ours.value.key == key
    # From a worker process it comes by pickle.
    again = pickle.loads(pickle.dumps(ours.value))
    assert (type(again), str(again), again.key) == (type(ours.value), str(ours.value), key)


def test_quiet_calls_agree(ours: CoopConsumer, theirs: Consumer) -> None:
    """Outside of a group, what a consumer says of itself."""
    for consumer in (ours, theirs):
        assert consumer.poll(0) is None
        assert consumer.consume(5, 0) == []
        assert consumer.assignment() == []
        (position,) = consumer.position(THERE)
        assert position.offset == confluent_kafka.OFFSET_INVALID
        assert not consumer.memberid()
        consumer.unsubscribe()
        consumer.unassign()


def test_configuration_by_keywords_goes_before_the_dict() -> None:
    servers: dict[str, Any] = {k: v for k, v in CONFIG.items() if k != "group.id"}
    mine: dict[str, Any] = {"group.id": "mine", "registry": CollectorRegistry()}
    for made in (CoopConsumer(**servers, **mine), CoopConsumer(CONFIG, **mine)):
        with made:
            assert made._config.group_id == "mine"
    Consumer(CONFIG, **{k: v for k, v in mine.items() if k == "group.id"}).close()
    with pytest.raises(KafkaException, match=r"group\.id"):
        CoopConsumer(**servers, registry=CollectorRegistry())


def test_keyword_arguments_of_construction(ours: CoopConsumer) -> None:
    with CoopConsumer(CONFIG, assignors=None, registry=CollectorRegistry(), logger=None) as made:
        assert made.subscription() == []


# --- partitions with errors ----------------------------------------------------------------------


def test_a_partition_with_an_error_goes_wherever_confluents_do() -> None:
    """on_commit gets these. confluent's raises NotImplementedError beside any other type."""
    error = KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)
    result = PartitionResult("t", 1, 5, metadata="m", leader_epoch=3, error=error)
    same, before, after = (TopicPartition("t", n) for n in (1, 0, 2))
    assert isinstance(result, TopicPartition)
    assert result == same
    assert same == result
    assert {same, result} == {result}
    assert result in [before, same]
    assert sorted([after, result, before]) == [before, result, after]
    assert before < result <= same <= result < after
    assert result != "t"
    again = pickle.loads(pickle.dumps(result))
    found = (again.topic, again.partition, again.offset, again.metadata, again.leader_epoch)
    assert found == ("t", 1, 5, "m", 3)
    assert again.error.code() == error.code()

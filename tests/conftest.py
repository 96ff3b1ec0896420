"""What every test may use: brokers, embedded and real, and hypothesis' profiles."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from importlib.metadata import version

import confluent_kafka
import hypothesis
import pytest

from benchmarks.peers.java import JavaPeer
from benchmarks.peers.wire import PeerUnavailableError
from kafka_coop.testing.cluster import KafkaCluster
from kafka_coop.testing.container import ContainerKafka
from kafka_coop.testing.embedded import EmbeddedKafka
from kafka_coop.testing.unavailable import KafkaUnavailableError

# Also the name of its entry point: pytest registers it once, installed or not.
pytest_plugins = ["kafka_coop.testing.pytest_plugin", "verdicts", "hangs", "crashes"]

# CI says the same of the same commit; at a desk each run tries other examples.
hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, print_blob=True)
hypothesis.settings.register_profile("dev", deadline=None, print_blob=True)
hypothesis.settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "dev")
)


# One of Spark's JVMs lives for as long as some tests do, and C2 would compile for most of that.
_SPARKS_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def pytest_configure() -> None:
    for whose in ("SPARK_SUBMIT_OPTS", "SPARK_DAEMON_JAVA_OPTS"):
        os.environ.setdefault(whose, _SPARKS_JVM)
    # Where a shell started the run in the background, SIGINT is ignored, and a process inherits
    # that from its parent: the tests' children would not hear the Ctrl-C that they are sent.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="run the tests that take minutes, too")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("slow") and not item.config.getoption("--slow"):
        pytest.skip("takes minutes: --slow")
    since, release = item.get_closest_marker("since"), item.config.getoption("--kafka-version")
    if since and release and _numbers(release) < _numbers(since.args[0]):
        pytest.skip(f"Kafka {release} has no {since.args[1]}, which came with {since.args[0]}")


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in release.split("."))


def pytest_report_header() -> str:
    return (
        f"librdkafka {confluent_kafka.libversion()[0]}, confluent-kafka"
        f" {version('confluent-kafka')}, kio {version('kio')}, numpy {version('numpy')}"
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs the real broker, so that `-m "not kafka"` runs without one.

    What asks Java's classes runs in one xdist worker, so that there is one JVM for all.
    """
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if fixtures & {"local_kafka", "kafka_cluster"}:
            item.add_marker(pytest.mark.kafka)
            item.add_marker(pytest.mark.real_kafka)
        if "has_docker" in fixtures:
            item.add_marker(pytest.mark.docker)
        if "java" in fixtures:
            item.add_marker(pytest.mark.xdist_group("java"))


class _ForeignPolicy(asyncio.DefaultEventLoopPolicy):
    """As `uvloop.install` sets one: its loops are another library's."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        raise AssertionError("this loop is the application's")


@pytest.fixture
def foreign_loops() -> Iterator[None]:
    """The process is a service that runs on another library's event loops: none is for us."""
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_ForeignPolicy())
    yield
    asyncio.set_event_loop_policy(before)


@pytest.fixture
def embedded(embedded_kafka: EmbeddedKafka) -> EmbeddedKafka:
    """A fresh embedded broker for each test."""
    return embedded_kafka


@pytest.fixture(scope="session")
def kafka(kafka_cluster: KafkaCluster) -> KafkaCluster:
    """The real Kafka of the whole run, which --kafka names. Tests use names of their own."""
    return kafka_cluster


@pytest.fixture(scope="session")
def has_docker() -> None:
    """Skips where no container can be started, and fails where one must be (KAFKA_COOP_DOCKER)."""
    try:
        ContainerKafka()
    except KafkaUnavailableError as error:
        if os.environ.get("KAFKA_COOP_DOCKER"):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def java() -> Iterator[JavaPeer]:
    """Apache Kafka's own assignors and codecs, in a JVM of the whole run.

    Without Java or its classes tests are skipped, and fail where CI is set.
    """
    try:
        peer = JavaPeer("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx512m")
    except PeerUnavailableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with peer:
        yield peer

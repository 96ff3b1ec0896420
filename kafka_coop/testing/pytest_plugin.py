"""Fixtures for pytest: an embedded broker for each test, a real one for the whole run, by option.

Registered by the package's entry point; nothing is imported before a fixture is used.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kafka_coop.testing.cluster import KafkaCluster
    from kafka_coop.testing.embedded import EmbeddedKafka

KINDS = ("embedded", "local", "local-3", "container")

_RELEASE = r"\d+\.\d+\.\d+[\w.-]*"
_TAG = r"\w[\w.-]*"

_RUN = "kafka-coop-run.lock"
"""In the run's folder: held by the controller of pytest-xdist, as long as it runs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Which broker the fixture `kafka_cluster` yields."""
    options = parser.getgroup("kafka", "brokers for tests (kafka_coop)")
    options.addoption(
        "--kafka",
        choices=KINDS,
        default="local",
        help="the broker of the fixture kafka_cluster (default: local, from its jars)",
    )
    options.addoption(
        "--kafka-version",
        metavar="VERSION",
        default=None,
        help="its release of Apache Kafka, where it is a real one",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Makes the marker known, and refuses a release that would not be had."""
    config.addinivalue_line(
        "markers", "real_kafka: needs a real broker; skipped with --kafka=embedded"
    )
    kind, version = config.getoption("--kafka"), config.getoption("--kafka-version")
    if version and kind == "embedded":
        raise pytest.UsageError("--kafka-version: the embedded broker is no release of Kafka's")
    if version and not re.fullmatch(_TAG if kind == "container" else _RELEASE, version):
        raise pytest.UsageError(f"--kafka-version: {version!r} is no release, such as 4.1.0")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Has the workers' broker stay until the run ends: a worker ends when it has no more tests."""
    config = session.config
    # As xdist itself does, whose workers' folders are in there; none with -p no:tmpdir.
    factory = getattr(config, "_tmp_path_factory", None)
    # pytest-xdist's, in its controller alone.
    if factory is not None and config.pluginmanager.has_plugin("dsession"):
        with contextlib.suppress(ImportError):  # where there is no fcntl, there is no such broker
            import fcntl  # noqa: PLC0415

            run = (factory.getbasetemp() / _RUN).open("w")
            fcntl.flock(run, fcntl.LOCK_SH)
            config.add_cleanup(run.close)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skips what the embedded broker can't do."""
    if item.get_closest_marker("real_kafka") and item.config.getoption("--kafka") == "embedded":
        pytest.skip("needs a real broker: --kafka=local or container")


@pytest.fixture
def embedded_kafka() -> Iterator[EmbeddedKafka]:
    """A fresh embedded cluster of one broker for each test.

    Where librdkafka's mock cluster is not to be had, tests are skipped, and fail where the
    environment variable CI is set.
    """
    yield from _embedded()


@pytest.fixture(scope="session")
def local_kafka(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster]:
    """A real Kafka from its jars, started once for the whole run, whatever the number of workers.

    Tests share it: let each use topics and groups of its own. Where Java or the jars are not
    to be had, tests are skipped, and fail where the environment variable CI is set.
    """
    yield from _shared(request.config, tmp_path_factory, "local")


@pytest.fixture(scope="session")
def kafka_cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaCluster | EmbeddedKafka]:
    """The broker that ``--kafka`` names, one for the whole run: the same tests run on each.

    ``embedded`` is librdkafka's mock cluster, ``local`` a broker from its jars, ``local-3`` three
    of them, ``container`` the image apache/kafka. Tests that need a real one are marked
    ``real_kafka`` and skipped with ``--kafka=embedded``.
    """
    kind = request.config.getoption("--kafka")
    if kind == "embedded":
        yield from _embedded()
    elif kind == "local" and not request.config.getoption("--kafka-version"):
        yield request.getfixturevalue("local_kafka")  # not a second one beside it
    else:
        version = request.config.getoption("--kafka-version")
        yield from _shared(request.config, tmp_path_factory, kind, version)


def _embedded() -> Iterator[EmbeddedKafka]:
    from kafka_coop.testing.embedded import EmbeddedKafka  # noqa: PLC0415  # loads librdkafka
    from kafka_coop.testing.librdkafka import MockClusterUnavailableError  # noqa: PLC0415  # its

    with _skipping_without(MockClusterUnavailableError):
        kafka = EmbeddedKafka()
    with kafka:
        yield kafka


@contextlib.contextmanager
def _skipping_without(missing: type[Exception]) -> Iterator[None]:
    """Skips where this says what is not to be had, and fails where the variable CI is set."""
    try:
        yield
    except missing as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))


def _shared(
    config: pytest.Config, factory: pytest.TempPathFactory, kind: str, version: str | None = None
) -> Iterator[KafkaCluster]:
    from kafka_coop.testing.local import DEFAULT_VERSION  # noqa: PLC0415  # loads librdkafka
    from kafka_coop.testing.shared import shared_kafka  # noqa: PLC0415  # the same
    from kafka_coop.testing.unavailable import KafkaUnavailableError  # noqa: PLC0415  # with it

    folder, run = factory.getbasetemp(), None
    # Not by the environment: a pytest that a worker's test runs has that, and is none.
    if hasattr(config, "workerinput"):
        folder = folder.parent  # each worker has a folder of its own in it
        run = folder / _RUN
    folder /= f"{kind}-{version or DEFAULT_VERSION}"
    folder.mkdir(exist_ok=True)
    how, _, brokers = kind.partition("-")
    with contextlib.ExitStack() as stack:
        with _skipping_without(KafkaUnavailableError):
            kafka = stack.enter_context(
                shared_kafka(
                    folder,
                    version or DEFAULT_VERSION,
                    kind="container" if how == "container" else "local",
                    brokers=int(brokers or 1),
                    run=run,
                )
            )
        yield kafka

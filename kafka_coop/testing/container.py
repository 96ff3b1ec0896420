"""A real Apache Kafka in a container, by testcontainers and the image apache/kafka.

Where no image registry is reachable, ``containers/build-image.sh VERSION`` of this project's
repository makes a stand-in of the same name from Maven and Debian.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from kafka_coop.testing.broker_settings import common_settings
from kafka_coop.testing.cluster import StartedKafka, peek, quiet_admin, wait_until
from kafka_coop.testing.ports import free_ports
from kafka_coop.testing.unavailable import KafkaUnavailableError

if TYPE_CHECKING:
    from testcontainers.core.container import DockerContainer
    from testcontainers.core.docker_client import DockerClient

DEFAULT_VERSION: Final = "4.1.0"

_CLIENT_PORT: Final = 9092
_CONTROLLER_PORT: Final = 9093
_INTERNAL_PORT: Final = 9094
_LOG_END: Final = 4000


class ContainerKafkaError(RuntimeError):
    """The broker in the container did not start. The text ends with the end of its log."""


class ContainerKafka(StartedKafka):
    """One real broker in a container, for as long as the ``with`` block runs.

    The settings are `LocalKafka`'s. The port is the same inside and outside, chosen before the
    start: a broker must know the address that it tells its clients.

    Args:
        version: The tag of the image apache/kafka: a release of Apache Kafka, 3.7 or later.
        properties: Broker settings beside and over ours.
        start_timeout: How long the broker may take to start; fetching the image comes on top.

    Raises:
        KafkaUnavailableError: testcontainers, a Docker daemon or the image is not to be had.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        *,
        properties: Mapping[str, str] | None = None,
        start_timeout: timedelta = timedelta(seconds=90),
    ) -> None:
        self.version: Final = version
        self._start_timeout = start_timeout
        self._stack = ExitStack()
        client = _docker()
        (port,) = free_ports(1)
        super().__init__(f"{client.host()}:{port}")
        settings = {**_settings(self.bootstrap_servers), **(properties or {})}
        self._container = _container(client, f"apache/kafka:{version}", port, settings)

    def __repr__(self) -> str:
        return f"ContainerKafka({self.bootstrap_servers!r}, version={self.version!r})"

    def start(self) -> None:
        """Starts the broker and waits until it serves. The ``with`` block does it for you.

        Raises:
            ContainerKafkaError: It does not.
        """
        self._stack.callback(self._container.stop)
        with _reaped_only_by_what_is_here():
            self._container.start()
        admin = quiet_admin(self.bootstrap_servers)

        def serving() -> bool:
            if self._container.get_wrapped_container().status in ("exited", "dead"):
                raise ContainerKafkaError(f"the broker ended{self._log_end()}")
            self._container.get_wrapped_container().reload()
            return (metadata := peek(admin)) is not None and bool(metadata.brokers)

        try:
            wait_until(serving, "the broker does not serve", self._start_timeout)
        except TimeoutError as error:
            raise ContainerKafkaError(f"{error}{self._log_end()}") from None

    def close(self) -> None:
        """Removes the container with its data. A second call does nothing."""
        self._stack.close()

    def _log_end(self) -> str:
        out, errors = self._container.get_logs()
        return f"; its log ends:\n{(out + errors).decode(errors='replace')[-_LOG_END:]}"


def _docker() -> DockerClient:
    if importlib.util.find_spec("testcontainers") is None:
        raise KafkaUnavailableError(
            "a broker in a container needs the package testcontainers:"
            " `pip install kafka-coop[testing]`"
        )
    from docker.errors import DockerException  # type: ignore[import-untyped]  # noqa: PLC0415  # no stubs; an optional package
    from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415  # the same

    try:
        client = DockerClient()
        client.client.ping()
    except DockerException as error:
        raise KafkaUnavailableError(
            "a broker in a container needs a Docker daemon that this user may use: start one"
            f" (`systemctl start docker`, or `dockerd` as root), or set DOCKER_HOST. {error}"
        ) from error
    return client


def _container(
    client: DockerClient, image: str, port: int, settings: Mapping[str, str]
) -> DockerContainer:
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415  # optional

    _fetch(client, image)
    container = DockerContainer(image).with_bind_ports(_CLIENT_PORT, port)
    for key, value in settings.items():
        container.with_env(_variable(key), value)
    return container.with_env("KAFKA_HEAP_OPTS", "-Xmx512m -XX:+UseSerialGC")


def _fetch(client: DockerClient, image: str) -> None:
    from docker.errors import APIError, DockerException, ImageNotFound  # noqa: PLC0415  # optional

    try:
        client.client.images.get(image)
    except ImageNotFound:
        try:
            client.client.images.pull(image)
        except (APIError, DockerException) as error:
            raise KafkaUnavailableError(
                f"the image {image} is neither here nor to be pulled: build a stand-in with"
                f" `containers/build-image.sh {image.partition(':')[2]}`. {error}"
            ) from error


@contextmanager
def _reaped_only_by_what_is_here() -> Iterator[None]:
    """Without the image of testcontainers' reaper at hand, `close` alone removes a container.

    Those that its user starts by themselves are reaped as ever.
    """
    from docker.errors import ImageNotFound  # noqa: PLC0415  # an optional package
    from testcontainers.core.config import testcontainers_config  # noqa: PLC0415  # the same

    before = testcontainers_config.ryuk_disabled
    try:
        _docker().client.images.get(testcontainers_config.ryuk_image)
    except ImageNotFound:
        testcontainers_config.ryuk_disabled = True
    try:
        yield
    finally:
        testcontainers_config.ryuk_disabled = before


def _settings(advertised: str) -> dict[str, str]:
    # A listener of its own for what the broker sends itself (the verification of transactions
    # does): the clients' address is one of the host's, and leads nowhere inside.
    internal = f"INTERNAL://localhost:{_INTERNAL_PORT}"
    return common_settings(replicas=1) | {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"CLIENT://:{_CLIENT_PORT},{internal},CONTROLLER://:{_CONTROLLER_PORT}",
        "advertised.listeners": f"CLIENT://{advertised},{internal}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@localhost:{_CONTROLLER_PORT}",
        "listener.security.protocol.map": (
            "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "inter.broker.listener.name": "INTERNAL",
    }


def _variable(key: str) -> str:
    """The variable by which the image sets a broker setting."""
    return "KAFKA_" + key.replace("_", "__").replace("-", "___").replace(".", "_").upper()

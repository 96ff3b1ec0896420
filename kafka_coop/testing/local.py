"""A real Apache Kafka on this machine, from its jars: no Docker, no installation.

Each broker is a Java process in KRaft mode with three listeners on 127.0.0.1: CLIENT, whose
security protocol can be chosen; INTERNAL, for the brokers among themselves and for
`LocalKafka.admin`; and CONTROLLER. One broker is up in some four seconds. Releases before 3.3
run with a ZooKeeper, one more process.
"""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import tempfile
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from kafka_coop.testing.broker_settings import (
    HOST,
    PORTS_OF_A_BROKER,
    Node,
    needs_zookeeper,
    place,
    quorum_settings,
    random_id,
    write_properties,
    zookeeper_settings,
    zookeepers_own_settings,
)
from kafka_coop.testing.cluster import StartedKafka, peek, quiet_admin, wait_until
from kafka_coop.testing.jars import cached, java_environment, kafka_jars
from kafka_coop.testing.java import find_java
from kafka_coop.testing.pact import DeathPact
from kafka_coop.testing.ports import hold_ports
from kafka_coop.testing.proxy import Proxy
from kafka_coop.testing.scratch import holds_libraries, scratch_folder
from kafka_coop.testing.unavailable import LocalKafkaUnavailableError

__all__ = ["DEFAULT_VERSION", "LocalKafka", "LocalKafkaError", "LocalKafkaUnavailableError"]

DEFAULT_VERSION: Final = "4.1.0"

_IDENTITY: Final = "meta.properties"
_ZOOKEEPER: Final = 0  # among the processes; brokers count from 1
_JVM_OPTIONS: Final = (
    "-Xmx512m",
    "-XX:+UseSerialGC",  # less to start and fewer threads than G1
    "-XX:TieredStopAtLevel=1",  # C2 would compile for longer than most tests run
    "-Xshare:auto",
    "-Djava.net.preferIPv4Stack=true",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=info",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS",
    # The dump of all settings, a thousand lines each time.
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.common.config=warn",
)
_STOP_TIMEOUT: Final = timedelta(seconds=30)


class LocalKafkaError(RuntimeError):
    """A broker did not start, stop or stay up. The text ends with the end of its log."""


class LocalKafka(StartedKafka):
    """A real Kafka cluster, for as long as the ``with`` block runs.

    The settings are for tests: sessions as short as 100 ms, no delay before a group's first
    rebalance, few partitions in the internal topics, no topics made by asking for them.
    Methods that stop and start brokers must not be called from several threads at once.

    Args:
        version: The release of Apache Kafka.
        brokers: How many brokers; their ids count from 1. The first three are controllers
            too where there are three or more, else the first alone.
        properties: Broker settings beside and over ours. Settings of the clients' listener
            begin with ``listener.name.client.``.
        client_protocol: The security protocol of the clients' listener: PLAINTEXT, SSL,
            SASL_PLAINTEXT or SASL_SSL.
        jvm_options: For the brokers' JVMs, behind ours.
        proxied: A `Proxy` stands before each broker; clients are told of it alone.
        start_timeout: How long a broker may take to start.

    Raises:
        LocalKafkaUnavailableError: Java or the jars are not to be had.
        ValueError: That is no release, or there would be no broker.
    """

    def __init__(
        self,
        version: str = DEFAULT_VERSION,
        brokers: int = 1,
        *,
        properties: Mapping[str, str] | None = None,
        client_protocol: str = "PLAINTEXT",
        jvm_options: Sequence[str] = (),
        proxied: bool = False,
        start_timeout: timedelta = timedelta(seconds=90),
    ) -> None:
        if brokers < 1:
            raise ValueError(f"a cluster has at least one broker, not {brokers}")
        for key, value in (properties or {}).items():
            if not isinstance(value, str):
                raise TypeError(f"properties: {key} is {value!r}; write it as a string")
        if isinstance(jvm_options, str):
            raise TypeError(f"jvm_options is the string {jvm_options!r}; put it into a list")
        self.version: Final = version
        self._java = find_java()
        self._jars = kafka_jars(version)
        self._with_zookeeper = needs_zookeeper(version)
        self._start_timeout = start_timeout
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._proxies: dict[int, Proxy] = {}
        _require_a_place_for_logs()
        # Before the folder, which nobody would remove where there are too few.
        ports, give_back = hold_ports(brokers * PORTS_OF_A_BROKER)
        self._folder = scratch_folder("kafka-coop-")
        # What a broker unpacks stays where it is killed: its codecs' libraries.
        unpacking = [f"-Djava.io.tmpdir={self._folder}"] if holds_libraries(self._folder) else []
        self._jvm_options = (*_JVM_OPTIONS, *unpacking, *jvm_options)
        self._pact = DeathPact(self._folder)
        self._destroy = weakref.finalize(
            self,
            _destroy,
            self._processes,
            self._proxies,
            self._pact,
            give_back,
            os.getpid(),
        )
        nodes = place(self._folder, brokers, ports, fronted=proxied)
        self._nodes = {node.id: node for node in nodes}
        for node in nodes if proxied else ():
            self._proxies[node.id] = Proxy(HOST, node.client, listen=node.advertised, seed=node.id)
        self._write_settings(properties or {}, client_protocol)
        super().__init__(
            ",".join(f"{HOST}:{node.advertised}" for node in self._nodes.values()),
            ",".join(f"{HOST}:{node.internal}" for node in self._nodes.values()),
        )

    def __repr__(self) -> str:
        return f"LocalKafka({self.bootstrap_servers!r}, version={self.version!r})"

    @property
    def brokers(self) -> tuple[int, ...]:
        """The ids of the brokers, up or down."""
        return tuple(self._nodes)

    def log(self, broker: int) -> Path:
        """The file a broker logs to, gone when the cluster is closed.

        Raises:
            LocalKafkaError: No such broker.
        """
        return self._known(broker).log

    def pid(self, broker: int) -> int:
        """The id of a broker's process, to look at it, or to stop it for a while (SIGSTOP).

        Raises:
            LocalKafkaError: It does not run.
        """
        return self._running(broker).pid

    def start(self) -> None:
        """Starts every broker that does not run, and waits until all serve.

        The ``with`` block does it for you.

        Raises:
            LocalKafkaError: One of them does not, or the cluster has been closed.
        """
        self._require_open()
        if self._with_zookeeper and _ZOOKEEPER not in self._processes:
            self._start_zookeeper()
        for broker in self._nodes:
            if broker not in self._processes:
                self._spawn(broker)
        for broker in self._nodes:
            self._wait_until_serving(broker)

    def require_brokers(self) -> None:
        """Does nothing where those that were started run, and were not stopped or killed here.

        Raises:
            LocalKafkaError: One has ended by itself.
        """
        for broker, code in self._ended_by_themselves():
            raise self._ended(broker, code)

    def close(self) -> None:
        """Kills the brokers and removes their data. A second call does nothing.

        Left to itself, a cluster is closed when it is collected or the interpreter exits, and
        dies with a process that is killed.
        """
        self._destroy()

    def proxy(self, broker: int) -> Proxy:
        """What stands before a broker.

        Raises:
            LocalKafkaError: No such broker; or nothing does: the cluster was not made with
                ``proxied``.
        """
        self._known(broker)
        if broker not in self._proxies:
            raise LocalKafkaError(f"no proxy stands before broker {broker}: proxied=True is needed")
        return self._proxies[broker]

    def start_broker(self, broker: int) -> None:
        """Starts a broker that was stopped or killed, with its data, and waits until it serves.

        Raises:
            LocalKafkaError: It runs already, or does not start; there is no such broker; or the
                cluster has been closed.
        """
        self._require_open()
        self._known(broker)
        if broker in self._processes:
            raise LocalKafkaError(f"broker {broker} is running")
        self._spawn(broker)
        self._wait_until_serving(broker)

    def stop_broker(self, broker: int) -> None:
        """Shuts a broker down in order: it hands its leaderships over and closes its logs.

        Raises:
            LocalKafkaError: It does not run, or does not end; it is killed then.
        """
        process = self._running(broker)
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_TIMEOUT.total_seconds())
        except subprocess.TimeoutExpired:
            self.kill_broker(broker)
            raise LocalKafkaError(f"broker {broker} does not stop{self._log_end(broker)}") from None
        del self._processes[broker]

    def kill_broker(self, broker: int) -> None:
        """Kills a broker, as a crash or a power cut would.

        The cluster misses it after ``broker.session.timeout.ms``, 3 s here and 9 s where it is
        the only broker. It cannot start again before.

        Raises:
            LocalKafkaError: It does not run.
        """
        _kill(self._running(broker))
        del self._processes[broker]

    def fill_disk(self, broker: int) -> None:
        """Has every further write of a broker to its disk fail. Linux only.

        A limit of the kernel's does it (RLIMIT_FSIZE): the broker gets an IOException, as from a
        full disk, takes its only log directory offline, and ends. What it wrote before is kept.

        Raises:
            LocalKafkaError: It does not run, or writes nothing and so does not end; it is
                killed then.
        """
        process = self._running(broker)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (1, 1))
        try:
            process.wait(_STOP_TIMEOUT.total_seconds())
        except subprocess.TimeoutExpired:
            self.kill_broker(broker)
            raise LocalKafkaError(f"broker {broker} minds no full disk") from None
        del self._processes[broker]

    def _require_open(self) -> None:
        if not self._destroy.alive:
            raise LocalKafkaError("the cluster is closed, and its data are gone: make another one")

    def _known(self, broker: int) -> Node:
        if broker not in self._nodes:
            raise LocalKafkaError(f"no broker {broker}: there are {list(self._nodes)}")
        return self._nodes[broker]

    def _running(self, broker: int) -> subprocess.Popen[bytes]:
        if broker not in self._processes:
            raise LocalKafkaError(f"broker {broker} is not running")
        return self._processes[broker]

    def _spawn(self, broker: int) -> None:
        node = self._nodes[broker]
        with node.log.open("ab") as log:
            self._processes[broker] = self._java_process(log, "kafka.Kafka", str(node.settings))

    def _java_process(self, log: BinaryIO, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(  # noqa: S603  # the jars of our cache
            [*self._command(), *words],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=java_environment(),
            # Not of our group: it outlives a Ctrl-C in the terminal until we end it.
            process_group=self._pact.group,
        )

    def _command(self) -> tuple[str, ...]:
        return (str(self._java), *self._jvm_options, "-cp", f"{self._jars}/*")

    def _wait_until_serving(self, broker: int) -> None:
        # A broker lists itself once the controller lets it serve. It is asked directly, as
        # the others may still list its former self.
        admin = quiet_admin(f"{HOST}:{self._nodes[broker].internal}")

        def serving() -> bool:
            for one, code in self._ended_by_themselves():  # or another, of its quorum
                del self._processes[one]
                raise self._ended(one, code)
            metadata = peek(admin)
            return metadata is not None and broker in metadata.brokers

        try:
            wait_until(serving, f"broker {broker} does not serve", self._start_timeout)
        except TimeoutError as error:
            raise LocalKafkaError(f"{error}{self._log_end(broker)}") from None

    def _ended_by_themselves(self) -> list[tuple[int, int]]:
        """Brokers that were started and not stopped or killed here, with their statuses."""
        codes = {broker: process.poll() for broker, process in self._processes.items()}
        return [(b, code) for b, code in codes.items() if b != _ZOOKEEPER and code is not None]

    def _ended(self, broker: int, code: int) -> LocalKafkaError:
        return LocalKafkaError(f"broker {broker} ended with status {code}{self._log_end(broker)}")

    def _log_end(self, broker: int) -> str:
        text = self._nodes[broker].log.read_text(errors="replace")
        cause = text.find(" ERROR ")  # what comes after it is often only the shutdown
        first = f"; its log says:\n{text[cause : cause + 2000]}\n" if cause >= 0 else ""
        return f"{first}; its log ends:\n{text[-2000:]}"

    def _write_settings(self, properties: Mapping[str, str], client_protocol: str) -> None:
        nodes = tuple(self._nodes.values())
        make = zookeeper_settings if self._with_zookeeper else quorum_settings
        for node in nodes:
            node.data.mkdir(parents=True)
            settings = {**make(node, nodes, client_protocol), **properties}
            write_properties(node.settings, settings)
        if not self._with_zookeeper:
            cluster_id = random_id()
            formatted = self._formatted()
            for node in nodes:
                _format(node, cluster_id, formatted)

    def _formatted(self) -> Path:
        """Written once, and kept in the cache; where that can't be written to, for us alone."""
        write = partial(_write_format, self._command())
        try:
            return cached(f"{self._jars.name}-formatted", write)
        except LocalKafkaUnavailableError:
            write(own := self._folder / "formatted")
            return own

    def _start_zookeeper(self) -> None:
        settings = self._folder / "zookeeper.properties"
        port = self._nodes[1].controller
        write_properties(settings, zookeepers_own_settings(port, self._folder / "zookeeper"))
        with self._folder.joinpath("zookeeper.log").open("ab") as log:
            # Brokers wait for it.
            self._processes[_ZOOKEEPER] = self._java_process(
                log, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(settings)
            )


def _format(node: Node, cluster_id: str, formatted: Path) -> None:
    """Formats a broker's storage as ``kafka-storage format`` does, without a JVM for each."""
    shutil.copytree(formatted, node.data, dirs_exist_ok=True)
    write_properties(
        node.data / _IDENTITY,
        {
            "version": "1",
            "cluster.id": cluster_id,
            "node.id": str(node.id),
            "directory.id": random_id(),
        },
    )


def _write_format(command: Sequence[str], into: Path) -> None:
    """What a new cluster's storage has: the release's features, such as KIP-848's.

    It is the same for every cluster of a release, but for who it is. Kafka's tool writes it where
    that release has it (since 4.4 in the metadata's own log, KIP-1170).
    """
    with tempfile.TemporaryDirectory(prefix="format-") as folder:
        (node,) = place(Path(folder), 1, range(PORTS_OF_A_BROKER))  # nobody starts it
        node.data.mkdir(parents=True)
        write_properties(node.settings, quorum_settings(node, (node,), "PLAINTEXT"))
        tool = ["kafka.tools.StorageTool", "format", "-t", random_id()]
        done = subprocess.run(  # noqa: S603  # the jars of our cache
            [*command, *tool, "-c", str(node.settings)],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=java_environment(),
        )
        if done.returncode:
            raise LocalKafkaError(f"the storage tool failed: {done.stdout}{done.stderr}")
        whose = shutil.ignore_patterns(_IDENTITY)
        shutil.copytree(node.data, into, ignore=whose, dirs_exist_ok=True)


def _require_a_place_for_logs() -> None:
    if "," in (folder := os.environ.get("TMPDIR", "")):
        raise LocalKafkaUnavailableError(
            f"a broker's data can't be in TMPDIR, {folder!r}: a comma stands between two entries "
            "of its log.dirs; name another folder"
        )


def _kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait()


def _destroy(
    processes: dict[int, subprocess.Popen[bytes]],
    proxies: dict[int, Proxy],
    pact: DeathPact,
    give_back: Callable[[], None],
    owner: int,
) -> None:
    if os.getpid() != owner:
        return  # a forked child, which ends; the brokers are its parent's
    for process in processes.values():
        process.kill()
    for process in processes.values():
        process.wait()
    processes.clear()
    for proxy in proxies.values():
        proxy.close()
    pact.close()
    give_back()

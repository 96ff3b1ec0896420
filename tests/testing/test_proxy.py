"""The faulty network: bytes pass, or don't, as told."""

from __future__ import annotations

import gc
import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from kafka_coop.testing.proxy import Proxy, Weather


@pytest.fixture
def echo() -> Iterator[int]:
    """A server that sends back what it gets."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(connection: socket.socket) -> None:
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            pass  # cut: that is what it is here for
        finally:
            connection.close()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(connection,)).start()

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", echo) as made:
        yield made


@pytest.fixture
def client(proxy: Proxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as made:
        yield made


def exchange(client: socket.socket, data: bytes) -> bytes:
    client.sendall(data)
    got = b""
    while len(got) < len(data):
        if not (more := client.recv(1 << 16)):
            break
        got += more
    return got


def test_bytes_pass_whole_and_in_order(client: socket.socket) -> None:
    data = bytes(range(256)) * 1000
    assert exchange(client, data) == data


@pytest.mark.parametrize(
    "weather",
    [
        Weather(latency=timedelta(milliseconds=5), jitter=timedelta(milliseconds=5)),
        Weather(loss=0.5, retransmit=timedelta(milliseconds=10)),
        Weather(bandwidth=1 << 20),
    ],
    ids=["latency", "loss", "bandwidth"],
)
def test_a_slow_network_loses_nothing(
    proxy: Proxy, client: socket.socket, weather: Weather
) -> None:
    proxy.set(weather)
    data = bytes(range(256)) * 400
    assert exchange(client, data) == data


def test_silence_holds_everything_back_until_healed(proxy: Proxy, client: socket.socket) -> None:
    assert exchange(client, b"before") == b"before"
    proxy.set(Weather(silent=True))
    client.sendall(b"later")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(16)
    client.settimeout(20)
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20):
        proxy.heal()  # half open, it accepted even so
    assert client.recv(16) == b"later"


def test_a_reset_reaches_the_client(proxy: Proxy, client: socket.socket) -> None:
    assert exchange(client, b"x") == b"x"
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        client.recv(16)


def test_a_cut_leaves_half_an_answer(proxy: Proxy, client: socket.socket) -> None:
    assert exchange(client, b"whole") == b"whole"
    proxy.cut_mid_frame()
    assert exchange(client, b"01234567") == b"0123"
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as again:
        assert exchange(again, b"whole") == b"whole"


def test_it_may_refuse(proxy: Proxy) -> None:
    proxy.set(Weather(refusing=True))
    with (
        pytest.raises(ConnectionResetError),
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client,
    ):
        client.recv(1)


def test_nobody_behind_it_is_a_reset() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    with (
        Proxy("127.0.0.1", port) as proxy,
        pytest.raises(ConnectionResetError),
        socket.create_connection(("127.0.0.1", proxy.port), timeout=20) as client,
    ):
        client.recv(1)


def test_who_has_just_come_when_it_closes_is_cut_and_nothing_is_left_behind(echo: int) -> None:
    """A connection may be accepted, and nobody have been asked to take care of it yet."""
    for _ in range(100):
        with Proxy("127.0.0.1", echo) as proxy:
            come = socket.create_connection(("127.0.0.1", proxy.port), timeout=20)
        with come, pytest.raises(ConnectionResetError):
            come.recv(1)
    gc.collect()  # pytest fails the test for a socket that is found open


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"latency": timedelta(seconds=-1)}, "latency is -1 day, 23:59:59; a time"),
        ({"loss": 2.0}, "loss is 2.0; a probability"),
        ({"bandwidth": 0}, "bandwidth is 0; for none"),
    ],
)
def test_weather_that_there_is_not_is_refused(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        Weather(**wrong)


def test_one_that_is_closed_has_no_weather() -> None:
    proxy = Proxy("127.0.0.1", 1)
    proxy.close()
    for change in (proxy.heal, proxy.reset, lambda: proxy.hold_back(0)):
        with pytest.raises(RuntimeError, match="the proxy is closed"):
            change()


def test_closing_it_twice_is_nothing(proxy: Proxy, client: socket.socket) -> None:
    assert exchange(client, b"x") == b"x"
    proxy.close()
    proxy.close()
    with pytest.raises(ConnectionResetError):
        client.recv(1)

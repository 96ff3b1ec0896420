"""Ports for brokers: whose they are while nobody listens."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator

import pytest

from kafka_coop.testing import ports
from kafka_coop.testing.broker_settings import HOST
from kafka_coop.testing.ports import NoFreePortsError, free_ports, hold_ports

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="ports are held on Linux")


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Three ports of three that there are."""
    found = free_ports(3)
    monkeypatch.setattr(ports, "_PORTS", found)
    held, give_back = hold_ports(3)
    yield held
    give_back()


def test_they_are_free_and_differ() -> None:
    found = free_ports(30)
    assert len({*found}) == 30
    for port in found:
        with socket.socket() as listener:
            listener.bind((HOST, port))


@on_linux
def test_nobody_else_is_given_what_is_held(held: list[int]) -> None:
    with pytest.raises(NoFreePortsError, match="no 1 free ports"):
        free_ports(1)
    with pytest.raises(NoFreePortsError):
        hold_ports(1)


def test_what_is_given_back_others_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_PORTS", free_ports(3))
    held, give_back = hold_ports(3)
    give_back()
    assert sorted(free_ports(3)) == sorted(held)


@on_linux
def test_whom_they_are_held_for_listens_leaves_and_listens_again(held: list[int]) -> None:
    for _ in range(2):
        with socket.create_server((HOST, held[0])) as server:
            with socket.create_connection((HOST, held[0])):
                near, _ = server.accept()
                near.close()
            with pytest.raises(NoFreePortsError):
                free_ports(1)


@on_linux
def test_nobody_answers_where_nobody_listens(held: list[int]) -> None:
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((HOST, held[0]))

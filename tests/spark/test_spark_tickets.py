"""Tasks that ask what they are to read."""

from __future__ import annotations

import pickle
import secrets
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from spark_sessions import Box

from kafka_coop.spark.errors import MembershipError
from kafka_coop.spark.offsets import Range
from kafka_coop.spark.options import stream_options
from kafka_coop.spark.reading import RangeTask, tasks_of
from kafka_coop.spark.rendezvous import Rendezvous
from kafka_coop.spark.stream import StreamReader
from kafka_coop.spark.tickets import Ticket, TicketOffice, open_office
from kafka_coop.types import TopicPartition

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.group.id": "g", "subscribe": "a"}
PORTIONS = [[(TopicPartition("ä", p), Range(p, 2**62 + p))] for p in range(8)]


@pytest.fixture
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("t") / "tickets"


@pytest.fixture
def office(path: Path) -> Iterator[TicketOffice]:
    made = TicketOffice(path)
    yield made
    made.close()


def test_tasks_at_once_each_get_a_portion(office: TicketOffice) -> None:
    tickets = pickle.loads(pickle.dumps(office.issue(PORTIONS)))
    with ThreadPoolExecutor(8) as tasks:
        told = list(tasks.map(Ticket.redeem, tickets * 3))
    assert sorted(map(list, told[:8])) == PORTIONS
    assert told == told[:8] * 3


def test_who_asks_and_says_nothing_holds_up_nobody(office: TicketOffice, path: Path) -> None:
    (ticket,) = office.issue(PORTIONS[:1])
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert list(ticket.redeem()) == PORTIONS[0]


@pytest.mark.parametrize("said", [b"\n", b"[1, 0]\n", b"\xff\n", b"{}\n", b'[[], {}, ""]\n', b""])
def test_what_is_no_question_gets_no_portion(office: TicketOffice, path: Path, said: bytes) -> None:
    (ticket,) = office.issue(PORTIONS[:1])
    with socket.socket(socket.AF_UNIX) as asking:
        asking.connect(str(path))
        asking.sendall(said)
        asking.shutdown(socket.SHUT_WR)
        with asking.makefile("rb") as answer:
            assert b"[[" not in answer.read()
    assert list(ticket.redeem()) == PORTIONS[0]


def test_a_task_fails_where_nobody_tells(path: Path) -> None:
    office = TicketOffice(path)
    (ticket,) = office.issue(PORTIONS[:1])
    assert list(ticket.redeem()) == PORTIONS[0]
    office.close()
    assert not path.exists()
    with pytest.raises(MembershipError, match="start the query again"):
        ticket.redeem()


def test_a_task_fails_where_who_told_has_died(path: Path) -> None:
    """Nothing listens at the socket any more."""
    with socket.socket(socket.AF_UNIX) as died:
        died.bind(str(path))
    with pytest.raises(MembershipError, match="start the query again"):
        Ticket(str(path), 1, 0).redeem()


def test_a_task_of_a_batch_that_is_forgotten_fails(office: TicketOffice) -> None:
    (ticket,) = office.issue(PORTIONS[:1])
    for _ in range(6):
        office.issue(PORTIONS[:1] * 10_000)
    with pytest.raises(MembershipError, match="foreachBatch"):
        ticket.redeem()


def test_a_path_that_is_too_long_for_a_socket_costs_no_more_than_speed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / ("long" * 40)))
    tmp_path.joinpath("long" * 40).mkdir()
    assert open_office(Rendezvous("1f")) is None
    assert "TMPDIR" in caplog.text


def test_an_office_is_closed_at_once_and_leaves_nothing_behind(path: Path) -> None:
    """Twice, as where a signal interrupts it; while somebody has asked and says nothing."""
    before = {*threading.enumerate()}
    office = TicketOffice(path)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        office.close()
        office.close()
    assert not path.exists()
    for left in {*threading.enumerate()} - before:
        left.join(10)
    assert {*threading.enumerate()} <= before


def test_a_socket_that_somebody_removed_is_known(office: TicketOffice, path: Path) -> None:
    ranges = {of: span for portion in PORTIONS for of, span in portion}
    options = stream_options(OPTIONS)
    assert all(task._ticket for task in tasks_of(ranges, options, office))
    path.unlink()
    told = [task.parts() for task in tasks_of(ranges, options, office)]
    assert sorted(map(list, told)) == PORTIONS


def test_a_run_leaves_anothers_socket_unless_that_is_dead() -> None:
    """The reader of a run that is being stopped may be slower than the next one."""
    its = Rendezvous(secrets.token_hex(8))
    office = TicketOffice(its.socket())
    (ticket,) = office.issue(PORTIONS[:1])
    dead = its.socket()
    with socket.socket(socket.AF_UNIX) as died:
        died.bind(str(dead))
    try:
        its.socket()
        assert not dead.exists()
        assert list(ticket.redeem()) == PORTIONS[0]
    finally:
        office.close()


def test_tasks_on_the_drivers_host_ask_until_the_query_is_stopped(box: Box) -> None:
    box.produce(10)
    reader = StreamReader(stream_options(box.given), near=True)
    end = reader.latestOffset({}, ReadMaxRows(100))
    tasks = [task for task in reader.partitions({}, end) if isinstance(task, RangeTask)]
    told = [pickle.loads(pickle.dumps(task)).parts() for task in tasks]
    assert sorted(of.partition for parts in told for of, _ in parts) == [0, 1]
    ticket = tasks[0]._ticket
    assert ticket is not None
    assert Path(ticket.socket).is_socket()
    reader.stop()
    assert not Path(ticket.socket).exists()
    with pytest.raises(MembershipError):
        tasks[0].parts()

"""The log event of a rebalance: one line for people, values for machines."""

from __future__ import annotations

import json
import logging
from dataclasses import fields, replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_coop.assignors.figures import PlanFigures
from kafka_coop.membership.record import RebalanceRecord, Role
from kafka_coop.metrics.log import log_rebalance, rebalance_fields, rebalance_message
from kafka_coop.types import Generation, Partitions

MS = timedelta(milliseconds=1)
RECORD = RebalanceRecord(
    group_id="orders",
    client_id="orders-1",
    member_id="orders-1-uuid",
    reason="group is already rebalancing",
    generation=Generation(7),
    protocol_name="cooperative-sticky",
    role=Role.LEADER,
    members=3,
    join=20.5 * MS,
    assign=1.2 * MS,
    sync=8 * MS,
    revoke_callback=3 * MS,
    total=34 * MS,
    assigned=Partitions({"a": [4, 5], "b": [0]}),
    revoked=Partitions({"a": [1, 2]}),
    kept=Partitions({"c": range(10)}),
)
EXAMPLE = (
    "rebalance group=orders client=orders-1 generation=7 role=leader assignor=cooperative-sticky "
    'members=3 reason="group is already rebalancing" moved=+3/-2 kept=10 total=34ms join=20.5ms '
    "assign=1.2ms sync=8ms on_revoke=3ms"
)
DURATIONS = st.timedeltas(min_value=timedelta(0), max_value=timedelta(hours=1))
PARTITIONS = st.sets(st.tuples(st.text(max_size=3), st.integers(0, 9))).map(Partitions.of)
RECORDS = st.builds(
    RebalanceRecord,
    group_id=st.text(),
    client_id=st.text(),
    reason=st.text(),
    error=st.none() | st.text(),
    protocol_name=st.none() | st.text(),
    members=st.none() | st.integers(1, 9),
    attempts=st.integers(1, 9),
    total=DURATIONS,
    join=DURATIONS,
    lost_callback=DURATIONS,
    assigned=PARTITIONS,
    lost=PARTITIONS,
    follow_up=st.booleans(),
)


def pairs(message: str) -> list[tuple[str, str]]:
    """The message taken apart again."""
    decoder, found = json.JSONDecoder(), []
    rest = message.removeprefix("rebalance").lstrip().removeprefix("failed").lstrip()
    while rest:
        key, _, rest = rest.partition("=")
        if rest.startswith('"'):
            value, end = decoder.raw_decode(rest)
            rest = rest[end:]
        else:
            value, _, rest = rest.partition(" ")
        found.append((key, value))
        rest = rest.lstrip()
    return found


def test_the_line() -> None:
    assert rebalance_message(RECORD) == EXAMPLE


def test_what_a_plan_costs_is_on_the_line_where_it_costs_something() -> None:
    def told(**plan: int) -> str:
        return rebalance_message(replace(RECORD, plan=PlanFigures(**plan)))

    assert told() == EXAMPLE
    assert " planned_moves=3 fewest_moves=2 recalled=1 total=" in told(
        moved=3, fewest=2, recalled=1
    )


@pytest.mark.parametrize(
    ("duration", "text"),
    [
        (timedelta(0), "total=0ms"),
        (timedelta(microseconds=125), "total=0.125ms"),
        (timedelta(microseconds=999_999), "total=1000ms"),
        (timedelta(seconds=1), "total=1.00s"),
        (timedelta(minutes=5), "total=300.00s"),
    ],
)
def test_durations(duration: timedelta, text: str) -> None:
    assert text in rebalance_message(replace(RECORD, total=duration)).split()


@settings(deadline=None)
@given(record=RECORDS)
def test_whatever_the_texts_it_is_one_line_that_can_be_taken_apart(record: RebalanceRecord) -> None:
    message = rebalance_message(record)
    assert len(message.splitlines()) == 1
    assert message.isprintable()
    found = pairs(message)
    values = dict(found)
    assert len(values) == len(found)  # no key twice
    assert values["group"] == record.group_id
    assert values["client"] == record.client_id
    assert values["reason"] == record.reason
    assert values.get("error") == record.error
    assert values["moved"] == f"+{len(record.assigned)}/-{len(record.revoked)}"
    assert values.get("lost", "0") == str(len(record.lost))
    assert ("on_lost" in values) == (record.lost_callback > timedelta(0))


@settings(deadline=None)
@given(record=RECORDS)
def test_the_fields_are_json(record: RebalanceRecord) -> None:
    values = rebalance_fields(record)
    assert json.loads(json.dumps(values)) == values
    assert values.keys() == rebalance_fields(RECORD).keys()
    assert values["outcome"] == ("completed" if record.error is None else "failed")
    pairs_of = {(t, p) for t, indices in values["assigned"].items() for p in indices}
    assert pairs_of == set(record.assigned)


def test_durations_are_seconds_and_partitions_lists() -> None:
    values = rebalance_fields(RECORD)
    assert values["total_seconds"] == 0.034
    assert values["phases_seconds"]["join"] == 0.0205
    assert values["phases_seconds"]["revoke"] == 0.003
    assert values["assigned"] == {"a": [4, 5], "b": [0]}
    assert values["revoked"] == {"a": [1, 2]}
    assert values["kept"] == 10
    assert values["role"] == "leader"


def test_no_duration_of_a_record_is_left_out() -> None:
    """A phase added to RebalanceRecord later must reach the log and the metrics."""
    ones: Any = {f.name: MS for f in fields(RECORD) if f.type in ("timedelta", timedelta)}
    phases = rebalance_fields(replace(RECORD, **ones))["phases_seconds"]
    assert set(phases.values()) == {0.001}
    assert len(phases) == len(ones) - 1  # all but the total


@pytest.mark.parametrize(
    ("error", "level"), [(None, logging.INFO), ("UNKNOWN_MEMBER_ID", logging.WARNING)]
)
def test_one_event_and_its_level(
    caplog: pytest.LogCaptureFixture, error: str | None, level: int
) -> None:
    record = replace(RECORD, error=error)
    logger = logging.getLogger("test.rebalances")
    with caplog.at_level(logging.DEBUG, logger=logger.name):
        log_rebalance(logger, record)
    (event,) = caplog.records
    assert event.levelno == level
    assert event.getMessage() == rebalance_message(record)
    assert event.__dict__["kafka_coop"] == rebalance_fields(record)


def test_a_failure_says_so_first() -> None:
    message = rebalance_message(replace(RECORD, error="UNKNOWN_MEMBER_ID"))
    assert message.startswith("rebalance failed group=orders ")
    assert " error=UNKNOWN_MEMBER_ID " in message


def test_percent_signs_are_text(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("test.rebalances")
    with caplog.at_level(logging.INFO, logger=logger.name):
        log_rebalance(logger, replace(RECORD, reason="100%s of %(it)d"))
    assert "100%s of %(it)d" in caplog.text


def test_a_logger_that_is_off_costs_no_formatting(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(record: RebalanceRecord) -> str:
        pytest.fail("formatted for nobody")

    monkeypatch.setattr("kafka_coop.metrics.log.rebalance_message", never)
    logger = logging.getLogger("test.rebalances.off")
    logger.setLevel(logging.WARNING)
    log_rebalance(logger, RECORD)

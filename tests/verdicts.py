"""A pytest plugin: which tests marked `verdict` have failed for more than a lack of patience.

A verdict is about what was lost, doubled, or owned by two. A machine that is busy may have the same
test give up before anything can be judged, and then a second run may tell. Kept in pytest's cache,
as its own list of failed tests is: what passes is taken out, what did not run stays. There, too,
are runs that did not come to their end: what they would have found nobody knows.
"""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Generator, Iterator
from typing import Any

import pytest

from kafka_coop.testing.container import ContainerKafkaError
from kafka_coop.testing.local import LocalKafkaError

KEY = "verdicts/final"
UNFINISHED = "verdicts/unfinished"
_FINAL = ("verdict", "final")
_OUT_OF_PATIENCE = (TimeoutError, subprocess.TimeoutExpired)
_NO_BROKER = (LocalKafkaError, ContainerKafkaError)
_STOPPED = (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)

_told: dict[str, bool] = {}


def is_final(marker: pytest.Mark, error: BaseException) -> bool:
    """Whether a test's failure stands, whatever a second run says.

    ``verdict(late=True)``: that something did not come in time, or no broker, is a verdict,
    too. An assertion that failed counts also where its ``finally`` ran out of patience.
    """
    if marker.kwargs.get("late") or not _may_pass(error):
        return True
    return any(isinstance(one, AssertionError) for one in _chain(error))


def _may_pass(error: BaseException) -> bool:
    """A busy machine's lack of patience, or a broker that does not start: nothing was judged."""
    return isinstance(error, _OUT_OF_PATIENCE + _NO_BROKER) or str(error).startswith("Timeout >")


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marker = item.get_closest_marker("verdict")
    judged = call.when == "call"  # what a fixture finds says nothing of records
    if (
        marker
        and judged
        and report.failed
        and call.excinfo
        and is_final(marker, call.excinfo.value)
    ):
        report.user_properties.append(_FINAL)
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    final = _FINAL in map(tuple, report.user_properties)
    _told[report.nodeid] = final or _told.get(report.nodeid, False)


def pytest_sessionstart(session: pytest.Session) -> None:
    if cache := _cache(session.config):
        cache.set(UNFINISHED, sorted({*cache.get(UNFINISHED, []), _run(session.config)}))


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    if not (cache := _cache(session.config)):
        return
    known = dict.fromkeys(cache.get(KEY, []), True) | _told
    cache.set(KEY, sorted(node for node, final in known.items() if final))
    if exitstatus not in _STOPPED and not session.shouldfail:  # by -x
        cache.set(UNFINISHED, sorted({*cache.get(UNFINISHED, [])} - {_run(session.config)}))


def _cache(config: pytest.Config) -> pytest.Cache | None:
    """None in an xdist worker: it tells whoever runs it."""
    return None if hasattr(config, "workerinput") else getattr(config, "cache", None)


def _run(config: pytest.Config) -> str:
    """A run is known by its words: the same ones are the same run, repeated."""
    return shlex.join(["pytest", *config.invocation_params.args])

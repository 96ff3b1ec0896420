"""A pytest plugin: which tests marked `verdict` have failed for more than a lack of patience.

A verdict is about what was lost, doubled, or owned by two. A machine that is busy may have the same
test give up before anything can be judged, and then a second run may tell. Kept in pytest's cache,
as its own list of failed tests is: what passes is taken out, what did not run stays.
"""

from __future__ import annotations

import subprocess
from collections.abc import Generator
from typing import Any

import pytest

KEY = "verdicts/final"
_FINAL = ("verdict", "final")
_OUT_OF_PATIENCE = (TimeoutError, subprocess.TimeoutExpired)

_told: dict[str, bool] = {}


def is_final(marker: pytest.Mark, error: BaseException) -> bool:
    """Whether a test's failure stands, whatever a second run says.

    ``verdict(late=True)``: that something did not come in time is a verdict, too.
    """
    late = isinstance(error, _OUT_OF_PATIENCE) or str(error).startswith("Timeout >")
    return bool(marker.kwargs.get("late")) or not late


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[Any]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    marker = item.get_closest_marker("verdict")
    judged = call.when == "call"  # a broker that does not start says nothing of records
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


def pytest_sessionfinish(session: pytest.Session) -> None:
    cache = getattr(session.config, "cache", None)
    if cache is None or hasattr(session.config, "workerinput"):  # xdist's: it tells whoever runs it
        return
    known = dict.fromkeys(cache.get(KEY, []), True) | _told
    cache.set(KEY, sorted(node for node, final in known.items() if final))

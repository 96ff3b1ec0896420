"""A pytest plugin: a run of several workers comes to its end where one of them has died.

By itself xdist 3.8 waits for ever then, where tests have groups: with what the dead worker had
still to do it puts back all that it had done, and whoever is handed nothing but that has no test
whose end would have the next one handed out. So one crash in C would cost the whole run.
"""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]  # it has no types


class _Scheduling(LoadGroupScheduling):  # type: ignore[misc]  # the same
    def remove_node(self, node: Any) -> str | None:
        """What died with the worker has failed; what it had still to do others do."""
        unfinished = _unfinished(self.assigned_work.pop(node))
        if not unfinished:
            return None
        first = next(iter(unfinished.values()))
        died = next(test for test, done in first.items() if not done)
        first[died] = True
        self.workqueue.update(_unfinished(unfinished))
        for other in self.nodes:
            self._reschedule(other)
        return died

    def schedule(self) -> None:
        """A worker begins with a test once it has the one after it: so each is given two."""
        super().schedule()
        for node in self.nodes:
            if self._pending_of(self.assigned_work[node]) < 2:
                self._reschedule(node)

    def _reschedule(self, node: Any) -> None:
        """Not for one in place of a dead one that still collects: its turn comes by `schedule`."""
        if node in self.registered_collections:
            super()._reschedule(node)


def _unfinished(units: dict[str, dict[str, bool]]) -> dict[str, dict[str, bool]]:
    return {scope: tests for scope, tests in units.items() if not all(tests.values())}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> _Scheduling | None:
    return _Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None

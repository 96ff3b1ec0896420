"""`Shutdown` notes signals, and leaves their handlers as it found them."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_coop.shutdown import Shutdown


@pytest.fixture
def before() -> Iterator[object]:
    """SIGTERM's handler; whatever a test leaves behind is undone."""
    handler = signal.getsignal(signal.SIGTERM)
    yield handler
    signal.signal(signal.SIGTERM, handler)


def test_a_signal_that_cant_be_caught_leaves_the_others_as_they_were(before: object) -> None:
    with pytest.raises(OSError, match="Invalid"), Shutdown((signal.SIGTERM, signal.SIGKILL)):
        raise AssertionError("it was entered")
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_handler_that_was_not_installed_from_python_gives_way_to_the_default(
    before: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An embedding program's: Python tells of it by None, and takes no None back."""
    put = signal.signal

    def as_if_from_c(one: signal.Signals, handler: Any) -> None:
        put(one, handler)

    with monkeypatch.context() as patched:
        patched.setattr(signal, "signal", as_if_from_c)
        with Shutdown((signal.SIGTERM,)) as shutdown:
            signal.raise_signal(signal.SIGTERM)
            assert shutdown
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL, "the second one ends it"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_sigterm_ends_a_forked_child_as_it_did_before(before: object) -> None:
    """`multiprocessing` sends one to its daemons when the process ends, and waits for their end."""
    with Shutdown((signal.SIGTERM,)), Shutdown((signal.SIGTERM,)) as inner:
        child = os.fork()
        if child == 0:
            os._exit(signal.getsignal(signal.SIGTERM) is not before)
        assert os.waitpid(child, 0)[1] == 0
        signal.raise_signal(signal.SIGTERM)
        assert inner, "the parent's are as they were"

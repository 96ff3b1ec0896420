"""The member's side of its watchdog: starts it, tells it who the member is, ends it."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import pickle
import subprocess
import sys
import weakref
from dataclasses import replace
from typing import Any

from kafka_coop.config import ConnectionSettings
from kafka_coop.errors import ConfigurationError
from kafka_coop.protocol.messages import Node
from kafka_coop.types import GroupMetadata
from kafka_coop.watchdog.ward import Ward

_BOOT = """\
import select, signal, sys

# A service's control group gets them all at once; this one is to be the last to go.
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
wait = sys.stdin.buffer.readline()
if not wait:
    sys.exit()
end = select.poll()
end.register(0, 0)  # however much there is to read
has_ended = end.poll(float(wait) * 1e3)

import os, pickle, site, threading

def load():
    if not has_ended and sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), os.getpriority(0, 0) + 10)
    site.main()
    sys.path[:] = pickle.load(sys.stdin.buffer)
    import kafka_coop.watchdog.supervisor

loading = threading.Thread(target=load)
loading.start()
loading.join()

from kafka_coop.watchdog.supervisor import main

main()
"""
"""Imports what the parent would, wherever it was installed. Nothing secret is on the command
line, nor in the environment: what the child must know comes through its standard input.

What is imported costs a third of a second of CPU, just when the member joins, whose partitions have
no owner meanwhile: on a small machine the whole group waited for that. So the child first does
nothing for some seconds (9 ms of CPU until then: hence ``-S``, and so few modules), unless its
parent ends; and then a thread of lower priority loads, which is a thread's own on Linux alone. What
waits for the member's end has the usual one.

``-P``: else ``-c`` would have it look for all these in the working directory first, where the
parent may not: a service's may be one that anybody writes to, or hold a ``types.py`` of its own."""

LOADS_AFTER = 5.0
"""Seconds. By then most members have joined. One that dies sooner leaves that much later: by what
loading takes."""

_USUAL_ROOM = 1 << 15
"""Bytes of a pipe's 64 KiB; the rest is for what is told before its reader is up."""


class Guard:
    """One consumer's watchdog. All methods belong to the membership's thread but `close`.

    A watchdog that has died is started again with the next rebalance, or word of the coordinator;
    the member never waits for it.

    Args:
        settings: How the member connects.
        logger: Is told of a watchdog that ended by itself.
        loads_after: Seconds from its start until it loads its modules, or the member's end.
    """

    def __init__(
        self,
        settings: ConnectionSettings,
        logger: logging.Logger,
        *,
        loads_after: float = LOADS_AFTER,
    ) -> None:
        self._settings = _without_callables(settings)
        self._loads_after = loads_after
        self._ward = Ward()
        self._log = logger
        self._process: subprocess.Popen[bytes] | None = None
        self._missing = False
        _guards.add(self)

    def start(self) -> None:
        """Starts the process.

        Raises:
            ConfigurationError: It can't be started.
        """
        if not sys.executable or getattr(sys, "frozen", False) or "uwsgi" in sys.modules:
            # Of a program that PyInstaller and the like have bundled, `sys.executable` is the
            # program, and under uWSGI that server. Started as an interpreter, it ignores the code
            # and runs once more, with one more consumer, whose watchdog runs it once more.
            raise ConfigurationError(
                "coop.watchdog",
                "coop.watchdog needs a Python interpreter to start, which there is none of in a "
                "bundled or embedded program: remove the key",
            )
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter
                [sys.executable, *_isolation(), "-P", "-S", "-c", _BOOT],
                stdin=subprocess.PIPE,
                bufsize=0,
                stdout=subprocess.DEVNULL,
                # Signals for the terminal's group (Ctrl-C) are the member's to answer.
                start_new_session=True,
            )
        except OSError as error:
            room = error.errno in (errno.ENOMEM, errno.EAGAIN, errno.EMFILE, errno.ENFILE)
            remedy = "make room for it" if room else "see that this user may run it"
            raise ConfigurationError(
                "coop.watchdog",
                f"coop.watchdog: its process {sys.executable!r} can't be started ({error}): "
                f"{remedy}, or remove the key",
            ) from error
        self._missing = False
        assert self._process.stdin is not None
        known = b"".join(map(pickle.dumps, (sys.path, os.getpid(), self._settings, self._ward)))
        waits = _make_room(self._process.stdin.fileno(), len(known))
        with contextlib.suppress(OSError):  # it is gone, which the next news finds out
            self._process.stdin.write(f"{self._loads_after if waits else 0}\n".encode() + known)
        os.set_blocking(self._process.stdin.fileno(), False)

    def identity(self, metadata: GroupMetadata) -> None:
        """The member's identity changed."""
        self._tell(replace(self._ward, group_id=metadata.group_id, member_id=metadata.member_id))

    def coordinator(self, node: Node | None) -> None:
        """The coordinator was found, or lost."""
        self._tell(replace(self._ward, coordinator=node or self._ward.coordinator))

    def credentials(self, username: str, password: str) -> None:
        """Later logins are to use these."""
        if self._settings.sasl is not None:
            sasl = replace(self._settings.sasl, username=username, password=password)
            self._settings = replace(self._settings, sasl=sasl)
            if self._is_running():
                self._send(self._settings)

    def close(self) -> None:
        """The member has left, or gives up: nothing is to be said in its name any more."""
        _guards.discard(self)
        self._missing = False
        process, self._process = self._process, None
        if process is None:
            return
        try:
            process.kill()  # it may be about to load its modules, and has nothing to put in order
        except PermissionError:  # the member has given up the rights with which it started it
            self._write(process, Ward())  # which is no member: it ends with its pipe
        finally:
            process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
        process.wait()

    def abandon(self) -> None:
        """In a forked child: were this end open here, the watchdog would wait for both to end."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _tell(self, ward: Ward) -> None:
        before, self._ward = self._ward, ward
        if self._is_running() and ward != before:
            self._send(ward)

    def _is_running(self) -> bool:
        """One that has ended is started anew, which knows all that there is to know."""
        if self._process is not None:
            if self._process.poll() is None:
                return True
            self._log.warning(
                "the watchdog of group %s ended with status %s: starting another",
                self._ward.group_id,
                self._process.returncode,
            )
            self._process.stdin.close()  # type: ignore[union-attr]  # it is a pipe
            self._process, self._missing = None, True
        if not self._missing:
            return False
        try:
            self.start()
        except ConfigurationError as error:
            self._log.warning("%s", error)
        return False

    def _send(self, what: Any) -> None:
        if self._process is not None:
            self._write(self._process, what)

    def _write(self, process: subprocess.Popen[bytes], what: Any) -> None:
        """Never waits. A pipe holds 64 KiB: one that is full has a reader that is stuck."""
        try:
            data = pickle.dumps(what)
            written = process.stdin.write(data)  # type: ignore[union-attr]  # it is a pipe
        except (OSError, ValueError):
            return  # it is gone, which the next news finds out
        if written != len(data):
            self._log.warning("the watchdog does not listen: ending it")
            with contextlib.suppress(PermissionError):  # as in `close`
                process.kill()
                process.wait()


def _make_room(pipe: int, size: int) -> bool:
    """So that a bundle of authorities need not wait for an interpreter to start and read it.

    Returns:
        Whether there is room. A pipe holds 64 KiB: where it can't be made larger, the first write
        waits for its reader.
    """
    if size <= _USUAL_ROOM:
        return True
    with contextlib.suppress(ImportError, AttributeError, OSError):  # Linux alone has it
        import fcntl  # noqa: PLC0415  # not everywhere

        return fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 2 * size) >= 2 * size
    return False


def _without_callables(settings: ConnectionSettings) -> ConnectionSettings:
    """What another process can use. ``oauth_cb`` is refused beside a watchdog."""
    if settings.sasl is None:
        return settings
    return replace(settings, sasl=replace(settings.sasl, oauth_cb=None))


_guards: weakref.WeakSet[Guard] = weakref.WeakSet()


def _isolation() -> list[str]:
    """Who ignores the environment's PYTHONPATH has a reason, and the watchdog gets credentials."""
    return ["-E"] if sys.flags.ignore_environment else []


def _abandon_in_child() -> None:
    for guard in list(_guards):
        guard.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_in_child)

"""A death pact: processes that die with the one that started them, however it dies.

A test run that is killed (SIGKILL, an out-of-memory killer) runs no clean-up. Its brokers would
live on, a JVM each. So they share a process group with a small shell that waits for the end of a
pipe. The other end is in our process alone, and ends with it: then the shell kills its whole group.
No process ids are told, so that none can be confused with one that was given away again. The
kernel's own PR_SET_PDEATHSIG would not do: it watches the starting thread, and is Linux's alone.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from pathlib import Path
from typing import Final

_WATCH: Final = 'read -r told; trap "" ALRM; kill -ALRM 0; rm -rf -- "$@"; kill -KILL 0'
"""Waits for a line, or the pipe's end.

SIGKILL ends the shell as well, so that a folder has to go before. But from whoever still writes
there `rm` can't take it: a broker makes a file while its folder is emptied, and that stays. SIGALRM
ends everybody else first: a shell can ignore it, and nobody here does, nor has a use for it.
"""


class DeathPact:
    """A process group that ends when this process does, or at `close`.

    A forked child of this process keeps the group alive for as long as it lives itself.

    Args:
        folders: Are removed with the group.
    """

    def __init__(self, *folders: Path) -> None:
        self._shell = subprocess.Popen(  # noqa: S603  # a constant, and folders of ours
            ["/bin/sh", "-c", _WATCH, "sh", *map(str, folders)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Of its own group: a Ctrl-C in the terminal does not reach it.
            process_group=0,
            # It needs `rm`, wherever this process finds its own programs.
            env={**os.environ, "PATH": f"{os.environ.get('PATH', '')}{os.pathsep}{os.defpath}"},
        )

    @property
    def group(self) -> int:
        """The process group to join: ``process_group`` of `subprocess.Popen`."""
        return self._shell.pid

    def close(self) -> None:
        """Kills the group and removes the folder, and waits for it. A second call does nothing.

        The shell is told: a forked child, of multiprocessing's perhaps, has our end of the pipe,
        too, and were the pipe's end waited for, this would wait for the child's.
        """
        pipe = self._shell.stdin
        assert pipe is not None, "it is a pipe"
        if pipe.closed:
            return
        with contextlib.suppress(BrokenPipeError), pipe:  # somebody has killed the shell
            pipe.write(b"\n")
        self._shell.wait()

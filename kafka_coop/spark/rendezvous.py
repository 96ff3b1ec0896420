"""How a driver's Python process and a reader process tell one another something: by files.

And where the reader's tasks find it, if they run on its host: by a socket.

Both run on the driver's host, as children of the same user: the reader process is started by the
driver's JVM. Neither knows the other's process id; what both know is the checkpoint's id, which
is in the offsets that a query reports (`kafka_coop.spark.offsets`).
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import socket
import stat
import tempfile
from pathlib import Path

from kafka_coop.spark.errors import MembershipError

_ID = re.compile(r"[0-9a-f]{1,64}")


class Rendezvous:
    """The files of one checkpoint: to drain, drained, and what is known of its query.

    Args:
        id: `kafka_coop.spark.offsets.SourceOffset.id`.

    Raises:
        ValueError: An id that we did not make: it must not name a path.
        MembershipError: The folder for the files is somebody else's.
    """

    def __init__(self, id: str) -> None:  # noqa: A002  # the attribute's name
        if not _ID.fullmatch(id):
            raise ValueError(f"{id!r} is no id of a checkpoint of kafka_coop")
        folder = Path(tempfile.gettempdir()) / f"kafka_coop-spark-{os.getuid()}"
        _refuse_anothers(folder)
        self._folder = folder
        self._asked = folder / f"{id}.drain"
        self._done = folder / f"{id}.drained"
        self._stateful = folder / f"{id}.stateful"
        self._aggregating = folder / f"{id}.aggregating"
        self._joining = folder / f"{id}.joining"
        self._in_competition = folder / f"{id}.in-competition"
        self._id = id

    def ask(self) -> None:
        """Driver: asks the reader to drain."""
        self._make_folder()
        self._done.unlink(missing_ok=True)
        self._asked.touch()

    def is_asked(self) -> bool:
        """Reader: whether it was asked to."""
        return self._asked.exists()

    def answer(self) -> None:
        """Reader: it has."""
        self._done.touch()

    def is_done(self) -> bool:
        """Driver: whether it has."""
        return self._done.exists()

    def mark_stateful(self, *, aggregating: bool, joining: bool = False) -> None:
        """Driver: the query keeps state.

        Args:
            aggregating: Whether records that are read again would change it.
            joining: Whether records of one stream wait there for those of another.
        """
        self._make_folder()
        self._stateful.touch()
        if aggregating:
            self._aggregating.touch()
        if joining:
            self._joining.touch()

    def is_stateful(self) -> bool:
        """Reader: whether the query is known to keep state."""
        return self._stateful.exists()

    def is_aggregating(self) -> bool:
        """Reader: whether it is known to keep one that a replay would change."""
        return self._aggregating.exists()

    def is_joining(self) -> bool:
        """Reader: whether it is known to join streams."""
        return self._joining.exists()

    def mark_in_competition(self) -> None:
        """Driver: another source of the query shares the group and topics with this one."""
        self._make_folder()
        self._in_competition.touch()

    def is_in_competition(self) -> bool:
        """Reader: whether that is known."""
        return self._in_competition.exists()

    def socket(self) -> Path:
        """Reader: where its tasks may ask it.

        Another name for each run, so that no task of an earlier one asks this one. What a run has
        left that was killed is removed.

        Raises:
            OSError: The folder can't be made.
        """
        self._make_folder()
        for earlier in self._folder.glob(f"{self._id}-*.tickets"):
            if _is_dead(earlier):
                earlier.unlink(missing_ok=True)
        return self._folder / f"{self._id}-{secrets.token_hex(4)}.tickets"

    def clear(self) -> None:
        """What was asked is void: the driver has its answer, or another run begins.

        Not so that it was in competition: what it has read since is in the checkpoint, and wrong.
        Nor that it keeps state, which no query can begin or cease to do with its checkpoint: a run
        by the hour may have one batch, of which nobody hears before the run is over.
        """
        for file in (self._asked, self._done):
            file.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        _refuse_anothers(self._folder)  # who may have been quicker


def _is_dead(path: Path) -> bool:
    """Whether nobody listens there any more; one that just ends does."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(0)
        return asking.connect_ex(str(path)) == errno.ECONNREFUSED


def _refuse_anothers(folder: Path) -> None:
    """In a temporary folder anybody may make it first, and drain this user's queries."""
    try:
        found = folder.lstat()
    except FileNotFoundError:
        return
    writable = stat.S_IWGRP | stat.S_IWOTH
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & writable:
        raise MembershipError(
            f"{folder} is another user's, or others may write to it: remove it, or set TMPDIR to a "
            "folder of your own, for the driver and all that it starts"
        )

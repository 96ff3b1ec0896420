"""How a driver's Python process and a reader process tell one another something: by files.

Both run on the driver's host, as children of the same user: the reader process is started by the
driver's JVM. Neither knows the other's process id; what both know is the checkpoint's id, which
is in the offsets that a query reports (`kafka_coop.spark.offsets`).
"""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

_ID = re.compile(r"[0-9a-f]{1,64}")


class Rendezvous:
    """The files of one checkpoint: to drain, drained, stateful, in competition.

    Args:
        id: `kafka_coop.spark.offsets.SourceOffset.id`.

    Raises:
        ValueError: An id that we did not make: it must not name a path.
    """

    def __init__(self, id: str) -> None:  # noqa: A002  # the attribute's name
        if not _ID.fullmatch(id):
            raise ValueError(f"{id!r} is no id of a checkpoint of kafka_coop")
        folder = Path(tempfile.gettempdir()) / f"kafka_coop-spark-{os.getuid()}"
        self._folder = folder
        self._asked = folder / f"{id}.drain"
        self._done = folder / f"{id}.drained"
        self._stateful = folder / f"{id}.stateful"
        self._in_competition = folder / f"{id}.in-competition"

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

    def mark_stateful(self) -> None:
        """Driver: the query keeps state."""
        self._make_folder()
        self._stateful.touch()

    def is_stateful(self) -> bool:
        """Reader: whether the query is known to keep state."""
        return self._stateful.exists()

    def mark_in_competition(self) -> None:
        """Driver: another source of the query shares the group and topics with this one."""
        self._make_folder()
        self._in_competition.touch()

    def is_in_competition(self) -> bool:
        """Reader: whether that is known."""
        return self._in_competition.exists()

    def begin(self) -> None:
        """A reader that starts: what was said of an earlier run is void.

        Not so that it was in competition: what it has read since is in the checkpoint, and wrong.
        """
        for file in (self._asked, self._done, self._stateful):
            file.unlink(missing_ok=True)

    def clear(self) -> None:
        """Driver: nothing is to be said of it any more."""
        self.begin()
        self._in_competition.unlink(missing_ok=True)

    def _make_folder(self) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)

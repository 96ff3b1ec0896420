"""Out of the group for good: what is under way ends, everything is given up, LeaveGroup."""

from __future__ import annotations

import logging
import time
from datetime import timedelta

from kafka_coop.backend.interface import Backend
from kafka_coop.client.commits import Commits
from kafka_coop.client.handover import Handover
from kafka_coop.kafka_errors import CoopException

PATIENCE = timedelta(seconds=10)
"""For what closing waits for on the network; the user's callbacks take what they take."""


def leave(
    backend: Backend,
    handover: Handover,
    commits: Commits,
    *,
    commit_first: bool,
    logger: logging.Logger,
) -> None:
    """Gives everything up, in order, and leaves; in the thread that closes.

    ``commit_first`` commits what was assigned by hand, of which no step will tell.

    Raises:
        Exception: The first that a callback raised, once all is done.
    """
    first: BaseException | None = None
    if commit_first:
        commits.commit_owned()
    commits.finish(PATIENCE / 2)
    backend.begin_close()
    mailbox = backend.mailbox
    deadline = time.monotonic() + PATIENCE.total_seconds()
    while not mailbox.left or mailbox.items:
        try:
            if mailbox.items:
                handover.attend()
                deadline = time.monotonic() + PATIENCE.total_seconds()
        except CoopException as error:
            logger.warning("while closing: %s", error)
        except BaseException as error:  # noqa: BLE001  # leave first, then raise it
            first = first or error
        if time.monotonic() >= deadline:
            break
        mailbox.wait(0.1)
    if first is not None:
        raise first

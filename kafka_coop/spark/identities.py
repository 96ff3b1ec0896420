"""Which topic it is that has a name: one that is deleted and made anew has another id (KIP-516).

A position in a log that is gone means nothing in the log that came after it, though it may well be
there: when the new topic has grown beyond it, nothing else tells the two apart.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from kafka_coop.fetching.log_offsets import LogOffsets

_HOLD = 1.0
"""Seconds for which ids are not asked for again. What is read of a topic that was deleted and made
anew within them, with more records than before, is read in its midst."""

_HOLD_UNTOLD = 10.0
"""The same where nobody told: a question that is not answered takes as long as `_PATIENCE`."""

_PATIENCE = 1.0


class Identities:
    """The ids under which the topics of a query are known. One thread asks.

    Args:
        logs: Who knows them.
        known: What the checkpoint says.
    """

    def __init__(self, logs: LogOffsets, known: Mapping[str, str]) -> None:
        self._logs = logs
        self._known = dict(known)
        self._asked: frozenset[str] = frozenset()
        self._ask_again = float("-inf")

    @property
    def known(self) -> Mapping[str, str]:
        """Topics that were told of, those that are gone included."""
        return self._known

    def made_anew(self, topics: Collection[str], *, at_once: bool = False) -> dict[str, str]:
        """The topics that are others than they were known as. What is new is known from here on.

        Asks the brokers, at most once a second. Where they do not tell (before 2.8 topics had no
        ids), topics pass for what they were.

        Args:
            topics: Those of which something is to be read.
            at_once: They may have changed since the last question, whenever that was.

        Returns:
            The ids that they had before.
        """
        now = time.monotonic()
        if now < self._ask_again and self._asked.issuperset(topics) and not at_once:
            return {}
        told = self._logs.topic_ids(topics, timeout=_PATIENCE)
        self._asked = frozenset(topics)
        self._ask_again = time.monotonic() + (_HOLD if told else _HOLD_UNTOLD)
        before = self._known
        self._known = before | told
        return {t: before[t] for t, id_ in told.items() if before.get(t, id_) != id_}

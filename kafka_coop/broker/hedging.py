"""When to ask one more broker, while those asked before are still silent."""

from __future__ import annotations

from collections.abc import Iterator

_FIRST_PATIENCE = 1.0
"""Seconds. A broker in good health answers in milliseconds; with a login it takes some hundred."""

_PART = 4
"""Of a short timeout, so that a second and a third broker have time to answer."""


def patiences(timeout: float) -> Iterator[float]:
    """How long an answer is waited for before one more broker is asked.

    Twice as long each time: where all are slow, since the cluster is overloaded, a minute's
    timeout has six of them asked, not sixty. What fails instead of being silent costs no patience.

    Args:
        timeout: The whole request's, in seconds.

    Yields:
        Seconds, without end.
    """
    patience = min(_FIRST_PATIENCE, timeout / _PART)
    while True:
        yield patience
        patience *= 2

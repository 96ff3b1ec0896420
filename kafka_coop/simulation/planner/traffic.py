"""What a group asks of its coordinator, second by second."""

from __future__ import annotations

import numpy as np

from kafka_coop.simulation.planner.ownership import Floats


class Traffic:
    """Counts requests."""

    def __init__(self) -> None:
        self._times: list[Floats] = []
        self._pace: list[tuple[float, float]] = [(0.0, 0.0)]

    def sent(self, times: Floats | list[float]) -> None:
        """Requests reach the coordinator at these times."""
        self._times.append(np.asarray(times, np.float64))

    def beating(self, members: int, interval: float, since: float) -> None:
        """From now on so many members beat at this interval."""
        self._pace.append((since, members / interval))

    def per_second(self, until: float) -> Floats:
        """Requests in each second from 0 on."""
        seconds = max(1, int(np.ceil(until)))
        times = np.concatenate([np.empty(0), *self._times])
        times = times[(times >= 0) & (times < seconds)]
        counts = np.bincount(times.astype(np.int64), minlength=seconds).astype(np.float64)
        edges = np.arange(seconds + 1, dtype=np.float64)
        for (since, rate), (end, _) in zip(
            self._pace, [*self._pace[1:], (float(seconds), 0.0)], strict=True
        ):
            if end > since:
                spent = np.clip(edges[1:], since, end) - np.clip(edges[:-1], since, end)
                counts += rate * spent
        return counts

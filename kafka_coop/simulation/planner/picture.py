"""The timeline: one row a member (of many: every n-th), time across, one panel a kind of client."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kafka_coop.simulation.planner.group import CoarseGroup
from kafka_coop.simulation.planner.scenario import Plan
from kafka_coop.simulation.planner.timeline import Phase

_COLOURS = {
    Phase.DOWN: "#9e9e9e",
    Phase.GIVING_UP: "#d1495b",
    Phase.WAITING: "#edae49",
    Phase.SYNCING: "#30638e",
}
_CONSUMING = "#e8f1ea"


class PlottingUnavailableError(Exception):
    """matplotlib is not installed. The text says what to do."""


def draw(plan: Plan, groups: Sequence[CoarseGroup], path: Path) -> None:
    """Writes the plot; the suffix decides its format.

    Raises:
        PlottingUnavailableError: matplotlib is not installed.
        OSError: The file can't be written.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415  # optional
        from matplotlib.figure import Figure  # noqa: PLC0415
        from matplotlib.patches import Patch  # noqa: PLC0415
    except ImportError:
        raise PlottingUnavailableError(
            "no timeline plot: matplotlib is not installed (pip install matplotlib)"
        ) from None
    figure = Figure(figsize=(12, 1.2 + 2.6 * len(groups)), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(len(groups), 1, sharex=True, squeeze=False)[:, 0]
    begins = max(min(step.at for step in plan.steps) - 1.0, 0.0)
    ends = max(group.ends for group in groups) + 1.0
    for panel, group in zip(panels, groups, strict=True):
        _draw_rows(panel, group, begins, ends)
    panels[-1].set_xlabel("seconds")
    figure.suptitle(plan.name)
    figure.legend(
        handles=[Patch(color=_CONSUMING, label="in the group, no round")]
        + [Patch(color=colour, label=phase.value) for phase, colour in _COLOURS.items()],
        loc="outside lower center",
        ncols=len(_COLOURS) + 1,
        frameon=False,
    )
    figure.savefig(path, dpi=120)


def _draw_rows(panel: Any, group: CoarseGroup, begins: float, ends: float) -> None:
    from matplotlib.collections import PolyCollection  # noqa: PLC0415  # optional

    panel.set_facecolor(_CONSUMING)
    for phase, colour in _COLOURS.items():
        boxes = [
            ((s.start, s.row), (s.end, s.row), (s.end, s.row + 1), (s.start, s.row + 1))
            for s in group.timeline.spans
            if s.phase is phase
        ]
        # An edge of the same colour: what lasts a millisecond would else be invisible.
        panel.add_collection(
            PolyCollection(boxes, facecolors=colour, edgecolors=colour, linewidths=0.3)
        )
    rows = group.timeline.rows
    panel.set_xlim(begins, ends)
    panel.set_ylim(len(rows), 0)
    panel.set_yticks([0, len(rows)], [str(rows[0]), str(rows[-1])])
    panel.set_ylabel(group.timeline.shown())
    panel.set_title(group.client.name, loc="left", fontsize="medium")

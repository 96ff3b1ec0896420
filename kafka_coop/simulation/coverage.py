"""How much of the member's table a run has visited."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from kafka_coop.membership import events as ev
from kafka_coop.membership.states import CELLS, EDGES, State
from kafka_coop.simulation.unvisited import UNVISITED


@dataclass(slots=True)
class Coverage:
    """Cells and edges of `kafka_coop.membership.states` that were visited.

    Attributes:
        cells: The member's state, and the kind of event that it was given in it.
        edges: A state, and the one after it.
    """

    cells: set[tuple[State, type[ev.Event]]] = field(default_factory=set)
    edges: set[tuple[State, State]] = field(default_factory=set)

    def add(self, other: Coverage) -> None:
        """Takes in what another run has visited."""
        self.cells |= other.cells
        self.edges |= other.edges

    def unexplained(self) -> list[str]:
        """Cells that were not visited, and of which `unvisited` does not say why."""
        missed = CELLS.keys() - self.cells - UNVISITED.keys()
        return _by_state((state, event.__name__) for state, event in missed)

    def report(self) -> list[str]:
        """How many were visited, and which were not; a line for each state with such."""
        all_edges = {(a, b) for a, after in EDGES.items() for b in after}
        missed_cells = CELLS.keys() - self.cells
        missed_edges = all_edges - self.edges
        return [
            f"cells: {len(CELLS) - len(missed_cells)} of {len(CELLS)} visited",
            *_by_state((s, event.__name__) for s, event in missed_cells),
            f"edges: {len(all_edges) - len(missed_edges)} of {len(all_edges)} visited",
            *_by_state((a, b.name) for a, b in missed_edges),
        ]


def _by_state(missed: Iterable[tuple[State, str]]) -> list[str]:
    names: dict[State, list[str]] = {}
    for state, name in missed:
        names.setdefault(state, []).append(name)
    return [f"  not in {s.name}: {', '.join(sorted(names[s]))}" for s in State if s in names]

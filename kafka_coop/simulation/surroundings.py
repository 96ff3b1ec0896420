"""What every process of a world shares."""

from __future__ import annotations

from dataclasses import dataclass

from kafka_coop.simulation.agenda import Agenda
from kafka_coop.simulation.invariants import Watcher
from kafka_coop.simulation.network import Network
from kafka_coop.simulation.trace import Trace


@dataclass(slots=True, kw_only=True, eq=False)
class Surroundings:
    """The world as one process sees it.

    Attributes:
        nodes: The numbers of all brokers, up or not.
        trace: Where to write down what happens; None: nowhere.
    """

    agenda: Agenda
    network: Network
    watcher: Watcher
    nodes: tuple[int, ...]
    trace: Trace | None = None

    def tell(self, who: str, what: str) -> None:
        """Writes a line into the trace. Build its text only where there is one: it costs."""
        if self.trace is not None:
            self.trace.write(self.agenda.now, who, what)

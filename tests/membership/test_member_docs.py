"""The diagram in the docs is the machine's own table."""

from __future__ import annotations

from pathlib import Path

from kafka_coop.membership.states import EDGES, State

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "ARCHITECTURE.md"


def diagram() -> list[str]:
    order = list(State)
    edges = [
        f"    {start.name} --> {end.name}"
        for start, ends in EDGES.items()
        for end in sorted(ends, key=order.index)
    ]
    return ["stateDiagram-v2", "    [*] --> UNSUBSCRIBED", *edges, "    CLOSED --> [*]"]


def test_the_state_diagram_is_the_table() -> None:
    text = ARCHITECTURE.read_text()
    drawn = text.split("```mermaid\n")[1].split("\n```")[0].splitlines()
    assert drawn == diagram(), "paste this:\n" + "\n".join(diagram())

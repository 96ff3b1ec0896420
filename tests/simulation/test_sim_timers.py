from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kafka_coop.simulation.timers import Timers

NAMES = st.sampled_from("abcd")
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("schedule"), NAMES, st.integers(0, 20)),
        st.tuples(st.just("cancel"), NAMES, st.just(0)),
        st.tuples(st.just("pop"), st.just(""), st.integers(0, 20)),
    ),
    max_size=400,
)


@given(STEPS)
def test_behaves_like_a_sorted_list(steps: list[tuple[str, str, int]]) -> None:
    timers: Timers[str] = Timers()
    model: list[tuple[float, int, str]] = []
    for number, (step, name, at) in enumerate(steps):
        match step:
            case "schedule":
                timers.schedule(name, at)
                model = sorted([e for e in model if e[2] != name] + [(at, number, name)])
            case "cancel":
                timers.cancel(name)
                model = [e for e in model if e[2] != name]
            case _:
                due = timers.pop_due(at)
                expected = model[0] if model and model[0][0] <= at else None
                assert due == (expected and (expected[0], expected[2]))
                model = model[1:] if expected else model
        assert timers.next_deadline() == (model[0][0] if model else None)
        assert {n: timers.deadline(n) for n in "abcd"} == dict.fromkeys("abcd") | {
            n: deadline for deadline, _, n in model
        }


def test_a_timer_moved_for_ever_keeps_the_heap_small() -> None:
    """Heartbeats move one deadline per member, thousands of times."""
    timers: Timers[str] = Timers()
    for at in range(10_000):
        timers.schedule("session", at)
    assert len(timers._heap) < 100
    assert timers.next_deadline() == 9_999


def test_clear_forgets_everything() -> None:
    timers: Timers[str] = Timers()
    timers.schedule("session", 1)
    timers.clear()
    assert timers.next_deadline() is None
    assert timers.pop_due(5) is None

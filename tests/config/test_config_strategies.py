from __future__ import annotations

import pytest
from config_samples import configured
from hypothesis import given
from hypothesis import strategies as st

from kafka_coop import assignors
from kafka_coop.config.strategies import DEFAULT, KNOWN_STRATEGIES, validate_strategies
from kafka_coop.errors import ConfigurationError

_KEY = "partition.assignment.strategy"


def test_the_known_names_are_those_of_the_strategies() -> None:
    assert assignors.known_names() == KNOWN_STRATEGIES


def test_the_default_is_known() -> None:
    assert validate_strategies(DEFAULT) == DEFAULT
    assert configured().strategies == DEFAULT


@given(st.lists(st.sampled_from(KNOWN_STRATEGIES), min_size=1, unique=True), st.data())
def test_names_keep_their_order(names: list[str], data: st.DataObject) -> None:
    space = st.text(" \t", max_size=2)
    written = ",".join(f"{data.draw(space)}{n}{data.draw(space)}" for n in names)
    assert configured(partition__assignment__strategy=written).strategies == tuple(names)


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("", "names no strategy"),
        (None, "names no strategy"),
        (" , ", "names no strategy"),
        ("range,", "empty name"),
        ("range, range", "range more than once"),
        ("cooperative_sticky", "did you mean cooperative-sticky"),
        ("cooperative-stiky", "did you mean cooperative-sticky"),
        ("org.apache.kafka.clients.consumer.RangeAssignor", "did you mean range"),
        ("org.apache.kafka.clients.consumer.CooperativeStickyAssignor", "cooperative-sticky"),
        ("mine", "assignors=["),
        ("zzz", "known are"),
    ],
)
def test_errors_say_what_to_do(written: str | None, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        configured(partition__assignment__strategy=written)
    assert caught.value.key == _KEY
    assert _KEY in str(caught.value)
    assert says in str(caught.value)

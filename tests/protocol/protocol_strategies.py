"""What the protocol's tests have in common: values to try, and bytes broken in every way."""

from __future__ import annotations

import random
from collections.abc import Iterator

from hypothesis import strategies as st

from kafka_coop.types import NO_GENERATION, Generation, Partitions, Subscription

INT32 = st.integers(-(2**31), 2**31 - 1)

topic_names = st.text(
    st.characters(codec="ascii", categories=("L", "N")) | st.sampled_from("._-"),
    min_size=1,
    max_size=40,
) | st.sampled_from(["orders", "orders-eu", "é", "t" * 249, "t" * 300])

partition_sets = st.dictionaries(
    topic_names, st.sets(st.integers(0, 2**31 - 1), max_size=8), max_size=6
).map(Partitions)

generations = st.integers(NO_GENERATION, 2**31 - 1).map(Generation)

user_data = st.none() | st.binary(max_size=40)

subscriptions = st.builds(
    Subscription,
    topics=st.sets(topic_names, max_size=6).map(lambda names: tuple(sorted(names))),
    owned=partition_sets,
    generation=generations,
    user_data=user_data,
    rack=st.none() | st.text(min_size=1, max_size=12),
)


def broken(data: bytes, seed: int) -> Iterator[bytes]:
    """The bytes cut at every place, with each bit turned, and with lengths that lie."""
    for end in range(len(data)):
        yield data[:end]
    for at in range(len(data)):
        for bit in range(8):
            yield data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
    for at in range(len(data) - 3):
        for lie in (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\xff\xff\xff"):
            yield data[:at] + lie + data[at + 4 :]
    shuffler = random.Random(seed)
    for _ in range(20):
        yield bytes(shuffler.choices(data or b"\0", k=len(data)))

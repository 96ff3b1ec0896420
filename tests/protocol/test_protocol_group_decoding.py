"""A whole group's subscriptions, read at once: as each member's would be read alone."""

from __future__ import annotations

import random
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol_strategies import broken, subscriptions

from kafka_coop.errors import MalformedDataError
from kafka_coop.protocol.group import GroupColumns
from kafka_coop.protocol.group_decoding import decode_group, decode_in_step
from kafka_coop.protocol.subscription import decode_subscription, encode_subscription
from kafka_coop.types import Generation, Partitions, Subscription

EXAMPLE = Subscription(
    topics=("a", "bc"),
    owned=Partitions({"a": [0, 7], "bc": [1]}),
    generation=Generation(5),
    user_data=b"\0\0\0\5",
    rack="r1",
)
EXAMPLE_BYTES = encode_subscription(EXAMPLE)


def claims(group: GroupColumns) -> list[tuple[str, str, int]]:
    said = group.claimed
    columns = zip(said.member.tolist(), said.topic.tolist(), said.partition.tolist(), strict=True)
    return sorted((group.members[m], group.names[t], p) for m, t, p in columns)


def read_alone(data: bytes) -> Subscription | str:
    try:
        return decode_subscription(data)
    except MalformedDataError as error:
        return str(error)


def agrees(members: dict[str, bytes]) -> GroupColumns:
    """Reads a group, in either way; both must say what each member read alone says."""
    for read in (decode_in_step, decode_group):
        group = agrees_with(members, *read(members))
    return group


def agrees_with(
    members: dict[str, bytes], group: GroupColumns, errors: dict[str, MalformedDataError]
) -> GroupColumns:
    """Values, claims and errors must be those of each member read alone."""
    assert list(group) == sorted(members)
    for member, data in members.items():
        alone = read_alone(data)
        assert group[member] == (Subscription() if isinstance(alone, str) else alone)
        assert (str(errors[member]) if member in errors else group[member]) == alone
    assert claims(group) == sorted((m, t, p) for m, s in group.items() for t, p in s.owned)
    wanted = {t for s in group.values() for t in s.topics}
    assert {group.names[n] for n in group.wanted().tolist()} == wanted
    return group


@given(
    few=st.lists(
        subscriptions.map(encode_subscription) | st.binary(max_size=60), min_size=1, max_size=8
    ),
    size=st.integers(0, 120),
)
def test_a_group_decodes_as_its_members_do(few: list[bytes], size: int) -> None:
    """From two dozen members on, they are decoded in step."""
    agrees({f"m{i}": few[i % len(few)] for i in range(size)})


def test_a_group_of_broken_members_decodes_as_they_do() -> None:
    agrees({f"m{i}": data for i, data in enumerate(broken(EXAMPLE_BYTES, seed=1))})


def test_broken_members_among_sound_ones_spoil_nothing() -> None:
    sound = [encode_subscription(EXAMPLE, version=v) for v in (0, 1, 2, 3)] * 20
    agrees({f"m{i}": data for i, data in enumerate([*broken(EXAMPLE_BYTES, seed=2), *sound])})


def test_nobody_is_a_group() -> None:
    assert not agrees({})


def test_what_begins_with_equal_bytes_is_read_once_and_stays_apart() -> None:
    names = [("a" * 30, f"b{i}") for i in range(30)]
    members = {f"m{i}": encode_subscription(Subscription(topics=names[i % 30])) for i in range(90)}
    group = agrees(members)
    assert len(set(group.kinds.tolist())) == 30


def test_members_of_one_subscription_share_its_topics() -> None:
    topics = tuple(f"t{i:03d}" for i in range(500))
    members = {
        f"m{i}": encode_subscription(Subscription(topics=topics, user_data=bytes(i % 3)))
        for i in range(100)
    }
    assert len({id(s.topics) for s in agrees(members).values()}) == 1


def test_topics_out_of_order_or_repeated_are_tidied() -> None:
    head = b"\0\0\0\0\0\4" + b"".join(b"\0\1" + t for t in (b"b", b"a", b"c", b"a"))
    group = agrees({f"m{i}": head + b"\xff" * 4 for i in range(50)})
    assert group["m0"].topics == ("a", "b", "c")


@pytest.mark.parametrize("seed", range(3))
def test_a_large_mixed_group(seed: int) -> None:
    """Lists and names of all lengths, some too long, with few and with many runs."""
    rng = random.Random(seed)
    names = ["x" * rng.choice((0, 3, 7, 8, 60, 260)) + f"{i:x}" for i in range(400)]
    lists = [tuple(sorted(rng.sample(names, rng.randint(0, 40)))) for _ in range(60)]
    members: dict[str, bytes] = {}
    for i in range(200):
        topics = rng.choice(lists)
        owned = Partitions(
            {t: rng.sample(range(1000), rng.choice((1, 1, 1, 5))) for t in topics[: i % 30]}
        )
        members[f"m{i}"] = encode_subscription(
            Subscription(
                topics=topics,
                owned=owned,
                generation=Generation(i - 3),
                rack=rng.choice((None, "r1", "r2")),
            ),
            version=rng.randint(0, 3),
        )
    agrees(members)


def test_a_lying_length_costs_no_memory() -> None:
    huge = b"\x7f\xff\xff\xff"
    liars = [
        b"\0\3" + huge,
        b"\0\3\0\0\0\0" + huge,
        b"\0\3\0\0\0\0\xff\xff\xff\xff" + huge,
        b"\0\3\0\0\0\0\xff\xff\xff\xff\0\0\0\1\0\1a" + huge,
    ]
    tracemalloc.start()
    try:
        _, errors = decode_group({f"m{i}": liars[i % 4] for i in range(100)})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(errors) == 100
    assert all("2147483647" in str(error) for error in errors.values())
    assert peak < 2_000_000

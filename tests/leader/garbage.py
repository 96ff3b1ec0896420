"""Garbage metadata by the million: the leader never raises, and never assigns twice.

    python tests/leader/garbage.py [--members N] [--seed N]

Groups of up to 64 members send damaged subscriptions to leaders of every strategy: cut off, with
bytes changed, put together from others, or random from the first byte. The last line says how
many there were; a group that is not survived is named by its seed, and ends the run.
"""

from __future__ import annotations

import argparse
import random
from itertools import count

from kafka_coop.assignors import known_names
from kafka_coop.leader import lead
from kafka_coop.protocol.assignment import decode_assignment
from kafka_coop.protocol.subscription import encode_subscription
from kafka_coop.types import Cluster, Generation, Partitions, Subscription

_TOPICS = {f"topic-{n}": 1 + 3 * n for n in range(6)}
_RACKS = tuple((f"r{n % 3}",) for n in range(16))
_CLUSTERS = (
    Cluster(partitions=_TOPICS),
    Cluster(partitions=_TOPICS, replica_racks=dict.fromkeys(_TOPICS, _RACKS)),
)
_MOST_MEMBERS = 64
_EVERY = 1000


def survives(seed: int) -> int:
    """Leads one group of garbage. Returns how many members it had.

    Raises:
        AssertionError: Somebody was not answered, or a partition assigned twice, or to a member
            that does not subscribe to it.
    """
    dice = random.Random(seed)
    members = {f"m{n}": _damaged(dice) for n in range(dice.randint(1, _MOST_MEMBERS))}
    outcome = lead(dice.choice(known_names()), dice.choice(_CLUSTERS), members)
    assert outcome.error is None, outcome.error
    assert outcome.assignments.keys() == members.keys()
    given = set()
    for member, data in outcome.assignments.items():
        for topic, partition in decode_assignment(data).partitions:
            assert topic in outcome.subscriptions[member].topics
            assert 0 <= partition < _TOPICS[topic]
            assert (topic, partition) not in given
            given.add((topic, partition))
    return len(members)


def _damaged(dice: random.Random) -> bytes:
    data = bytearray(_subscription(dice))
    match dice.randrange(5):
        case 0:
            data = data[: dice.randint(0, len(data))]
        case 1:
            for _ in range(dice.randint(1, 4)):
                data[dice.randrange(len(data))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF))
        case 2:
            data = data[: dice.randint(0, len(data))] + _subscription(dice)
        case 3:
            data = bytearray(dice.randbytes(dice.randint(0, 80)))
        case _:
            pass  # among the others is one that tells the truth
    return bytes(data)


def _subscription(dice: random.Random) -> bytes:
    def some() -> list[str]:
        return dice.sample(sorted(_TOPICS), dice.randint(0, len(_TOPICS)))

    owned = {t: [dice.randint(0, 20) for _ in range(dice.randint(0, 6))] for t in some()}
    return encode_subscription(
        Subscription(
            topics=tuple(some()),
            owned=Partitions(owned),
            generation=Generation(dice.choice((-1, 0, 3, 4, 2**31 - 1))),
            user_data=dice.choice((None, b"", dice.randbytes(dice.randint(0, 40)))),
            rack=dice.choice((None, "", "r1", "r2")),
        ),
        version=dice.randint(0, 3),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--members", type=int, default=1_000_000, help="how many, in all groups")
    parser.add_argument("--seed", type=int, default=0, help="of the first group")
    options = parser.parse_args()
    done = 0
    for seed in count(options.seed):
        if done >= options.members:
            break
        try:
            done += survives(seed)
        except BaseException:
            print(f"seed {seed}")
            raise
        if seed % _EVERY == 0:
            print(f"{done:,} members", flush=True)
    print(f"{done:,} members survived")


if __name__ == "__main__":
    main()

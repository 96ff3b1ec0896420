"""Which partitions, once it is known how many: the choices that loads and moves leave open.

What is left open is used to spread each topic over the members (KAFKA-16277): a topic is often
one workload, and a member with all of it is overloaded whatever its count says.
"""

from __future__ import annotations

import numpy as np

from kafka_coop.assignors.columns import Counts, Ints, by_index


def deal(quota: Counts, deck: Ints | None = None) -> Ints | Counts:
    """Deals as many places as the quotas add up to, one a round to everyone who wants more.

    Places are to be filled in order of position, topic by topic: while quotas differ by at most
    one, each topic is spread as evenly as the total. Larger quotas take part in every round, in
    proportion, so that a new member gets some of every topic.

    Args:
        quota: Per recipient how many it is to get.
        deck: Per recipient, ascending, the deck it is dealt from; None: all from one.

    Returns:
        Per place the recipient's index, deck after deck.
    """
    needy = np.flatnonzero(quota)
    wanted = quota[needy]
    if not needy.size:
        return needy
    low, most = int(wanted.min()), int(wanted.max())
    if deck is None and most <= low + 1:
        return np.concatenate((np.tile(needy, low), needy[wanted > low]))
    if most == 1:
        return needy
    who = np.repeat(np.arange(needy.size), wanted)
    nth = np.arange(who.size) - np.repeat(np.cumsum(wanted) - wanted, wanted)
    turn = nth * most // np.repeat(wanted, wanted)
    if deck is not None:
        turn += np.repeat(deck[needy] * np.int64(most), wanted)
    # Turn and recipient are sorted as one number: several times faster than sorting places.
    both = turn * needy.size + who
    both.sort()
    return needy.take(both % needy.size)


def surplus(owner: Ints | Counts, excess: Counts, topic_of: Ints) -> Counts:
    """Chooses what members give up: from the topics they have most of.

    Where they have equally many of all, each starts from another topic, so that what is given up
    is a mixture for whoever gets it.

    Args:
        owner: Per position the owner, or `NOBODY`.
        excess: Per member how many to give up.
        topic_of: Per position the topic.

    Returns:
        The positions to give up, in no particular order.
    """
    givers = excess > 0
    if not givers.any():
        return np.empty(0, np.int64)
    mine = np.flatnonzero(givers[owner] & (owner >= 0))
    order, ends = by_index(owner[mine], excess.size)
    position = mine[order]
    member, topic = owner[position], topic_of[position].astype(np.int64)
    topics = int(topic_of[-1]) + 1
    nth = _rank_in_run(member.astype(np.int64) * topics + topic)
    first = np.cumsum(excess) - excess
    turn = (topic - first[member]) % topics
    key = (nth.max() - nth) * topics + turn
    key += member.astype(np.int64) * ((nth.max() + 1) * topics)
    chosen = position[np.argsort(key, kind="stable")]
    nth_of_member = np.arange(chosen.size) - np.repeat(ends[:-1], np.diff(ends))
    return chosen[nth_of_member < np.repeat(excess, np.diff(ends))]


def _rank_in_run(key: Counts) -> Counts:
    """Counts up from 0 within each run of equal values."""
    at = np.arange(key.size)
    begins = np.concatenate(([True], key[1:] != key[:-1]))
    return at - np.maximum.accumulate(np.where(begins, at, 0))

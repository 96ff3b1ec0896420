"""Topic names by number, looked up a million at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from kafka_coop.protocol.partition_sets import Longs

LONGEST_NAME = 255
"""Kafka allows 249."""

_Words = npt.NDArray[np.uint64]

_WORD = 8
_BLOCK = 1 << 15
"""Names looked at together: what they are compared by stays in the cache."""
_FEW = 256
"""Names looked up one by one before a new index is worth its while."""
_SLOTS_A_NAME = 16
_LEVELS = 3
_MASKS: _Words = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], np.uint64)
"""Keeps the first n bytes of a little-endian word."""
_MULTIPLIERS: _Words = (
    np.arange(1, LONGEST_NAME // _WORD + 2 + _LEVELS, dtype=np.uint64)
    * np.uint64(0x9E3779B97F4A7C15)
) | np.uint64(1)
_HALF = np.uint64(32)


class TopicNames:
    """Numbers names in the order in which they are first met.

    Keep one for a batch, not for longer: it remembers what it met.

    Attributes:
        texts: The names by number.
    """

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._raw: list[bytes] = []
        self._numbers: dict[bytes, int] = {}
        self._index = _Index([])

    def number(self, raw: bytes) -> int:
        """Returns the name's number; -1: it is no UTF-8."""
        known = self._numbers.get(raw)
        if known is None:
            try:
                self.texts.append(raw.decode())
            except UnicodeDecodeError:
                known = -1
            else:
                known = len(self._raw)
                self._raw.append(raw)
            self._numbers[raw] = known
        return known

    def ranks(self) -> Longs:
        """Returns each name's place among all in order."""
        ranks = np.empty(len(self.texts), np.int64)
        ranks[sorted(range(ranks.size), key=self.texts.__getitem__)] = np.arange(ranks.size)
        return ranks

    def number_all(self, buffer: bytes, at: Longs, lengths: Longs) -> Longs:
        """Returns the numbers of many names.

        Args:
            buffer: Holds the names, and at least `LONGEST_NAME` + 8 bytes behind each's begin.
            at: Where each begins.
            lengths: How long each is, at most `LONGEST_NAME`.
        """
        blocks = [
            self._number_block(buffer, at[a : a + _BLOCK], lengths[a : a + _BLOCK])
            for a in range(0, at.size, _BLOCK)
        ]
        return np.concatenate([np.empty(0, np.int64), *blocks])

    def _number_block(self, buffer: bytes, at: Longs, lengths: Longs) -> Longs:
        words = _words(buffer, at, lengths)
        found = self._index.find(words, lengths)
        rest = np.flatnonzero(found < 0)
        while rest.size:
            # The index is made anew for no fewer names than make its cost small beside theirs.
            few = max(_FEW, len(self._raw) // 4)
            one_by_one, rest = rest[:few], rest[few:]
            for nth, begin, length in zip(
                one_by_one.tolist(),
                at[one_by_one].tolist(),
                lengths[one_by_one].tolist(),
                strict=True,
            ):
                found[nth] = self.number(buffer[begin : begin + length])
            if rest.size and len(self._raw) > self._index.size:
                self._index = _Index(self._raw)
                found[rest] = self._index.find([w[rest] for w in words], lengths[rest])
                rest = rest[found[rest] < 0]
        return found


class _Index:
    """A hash table in numpy. Whatever it finds was compared byte by byte.

    Names that fall into one slot are told apart on the next level by another hash; those that
    collide on all levels are not found, which costs the caller time and nothing else.
    """

    def __init__(self, names: list[bytes]) -> None:
        self.size = len(names)
        short = [n if len(n) <= LONGEST_NAME else b"" for n in names]
        width = max(map(len, short), default=0) // _WORD + 1
        rows = b"".join(n.ljust(width * _WORD, b"\0") for n in (*short, b""))
        table = np.frombuffer(rows, "<u8").reshape(-1, width)
        self._words = [np.ascontiguousarray(column) for column in table.T]
        # What an empty slot holds: a last entry that nothing is equal to.
        self._lengths = np.array([*map(len, names), -1], np.int64)
        self._shift = np.uint64(64 - (len(names) * _SLOTS_A_NAME + 1).bit_length())
        self._levels: list[Longs] = []
        left = np.flatnonzero(self._lengths[:-1] <= LONGEST_NAME)
        for level in range(_LEVELS):
            if not left.size:
                break
            words = [w[left] for w in self._words]
            slots = self._slots(_keys(words, self._lengths[left]), level)
            taken = np.full(1 << (64 - int(self._shift)), len(names), np.int64)
            taken[slots] = left
            self._levels.append(taken)
            left = left[taken[slots] != left]

    def find(self, words: list[_Words], lengths: Longs) -> Longs:
        """Returns each name's number, or -1."""
        found = np.full(lengths.size, -1, np.int64)
        if not self._levels:
            return found
        keys = _keys(words, lengths)
        rest = np.arange(lengths.size)
        for level, slots in enumerate(self._levels):
            candidate = slots[self._slots(keys, level)]
            same = self._lengths[candidate] == lengths
            for mine, word in zip(self._words, words, strict=False):
                same &= mine[candidate] == word
            if level == 0:
                found = np.where(same, candidate, -1)
            else:
                found[rest[same]] = candidate[same]
            if same.all():
                break
            missed = ~same
            rest, keys, lengths = rest[missed], keys[missed], lengths[missed]
            words = [w[missed] for w in words]
        return found

    def _slots(self, keys: _Words, level: int) -> _Words:
        slots: _Words = (keys * _MULTIPLIERS[-1 - level]) >> self._shift
        return slots


def _words(buffer: bytes, at: Longs, lengths: Longs) -> list[_Words]:
    """Each name as columns of eight bytes, padded with zeros."""
    shortest, longest = int(lengths.min()), int(lengths.max())
    width = longest // _WORD + 1
    record = np.dtype(f"V{_WORD * width}")
    there = np.ndarray((len(buffer) - record.itemsize + 1,), record, buffer, 0, (1,))
    columns = there[at].view("<u8").reshape(-1, width).T
    words: list[_Words] = []
    for nth, column in enumerate(columns):
        have = lengths - nth * _WORD
        if shortest < (nth + 1) * _WORD:
            words.append(column & _MASKS[np.clip(have, 0, _WORD)])
        else:
            words.append(np.ascontiguousarray(column))
    return words


def _keys(words: list[_Words], lengths: Longs) -> _Words:
    """A hash of each name; words of zeros add nothing, so it doesn't depend on the padding."""
    keys = lengths.astype(np.uint64)
    for word, multiplier in zip(words, _MULTIPLIERS, strict=False):
        mixed = word * multiplier
        keys += mixed ^ (mixed >> _HALF)
    return keys

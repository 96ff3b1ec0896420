"""Throws random and damaged bytes at every decoder.

    python tests/protocol/protocol_fuzz.py --inputs 10000000 --jobs 2
    python tests/protocol/protocol_fuzz.py --only marks --inputs 100000

Inputs are sound bytes with one to four things done to them (bits turned, bytes set, cut, repeated
or put in, lengths that lie, parts of other inputs), and one in sixteen is nothing but chance. What
a decoder took in spite of that is damaged further. A batch of inputs that takes more than a minute
of CPU time, or more memory than `ROOM`, is a fault like any other. Prints how many inputs each
decoder had and how many it took; a fault ends it with status 1, and with what repeats it.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from protocol_decoders import Decoder, as_json, decoders

ROOM = 4 << 30
"""Bytes of address space: a length that lies must not be believed."""

BATCH = 64
_CPU_SECONDS = 60.0
_LONGEST = 600
_KEPT = 256
_CHUNK = 20_000
_VERSION = re.compile(r" v\d+ answer")

_LIES = tuple(
    struct.pack(form, number)
    for form, numbers in (
        (">i", (-1, -2, 0, 1, 2, 0x7F, 0xFFFF, 0x7FFFFFFF, -0x80000000, 0x10000000)),
        (">h", (-1, -2, 0, 1, 0x7FFF, -0x8000, 0xFF)),
        (">B", (0, 1, 0x7F, 0x80, 0xFF)),
        (">5s", (b"\xff\xff\xff\xff\x0f", b"\x80\x80\x80\x80\x00", b"\xff\xff\xff\xff\xff")),
    )
    for number in numbers
)


def _turn_a_bit(data: bytearray, chance: random.Random, _: bytes) -> None:
    if data:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set_a_byte(data: bytearray, chance: random.Random, _: bytes) -> None:
    if data:
        data[chance.randrange(len(data))] = chance.randrange(256)


def _cut(data: bytearray, chance: random.Random, _: bytes) -> None:
    del data[chance.randrange(len(data) + 1) :]


def _take_out(data: bytearray, chance: random.Random, _: bytes) -> None:
    at = chance.randrange(len(data) + 1)
    del data[at : at + chance.randrange(1, 9)]


def _put_in(data: bytearray, chance: random.Random, _: bytes) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = chance.randbytes(chance.randrange(1, 9))


def _lie(data: bytearray, chance: random.Random, _: bytes) -> None:
    lie = chance.choice(_LIES)
    at = chance.randrange(len(data) + 1)
    data[at : at + len(lie)] = lie


def _repeat(data: bytearray, chance: random.Random, _: bytes) -> None:
    at = chance.randrange(len(data) + 1)
    data[at:at] = data[at : at + chance.randrange(1, 40)]


def _splice(data: bytearray, chance: random.Random, other: bytes) -> None:
    here, there = chance.randrange(len(data) + 1), chance.randrange(len(other) + 1)
    data[here:] = other[there:]


_DAMAGES: tuple[Callable[[bytearray, random.Random, bytes], None], ...] = (
    *(_turn_a_bit, _set_a_byte, _cut, _take_out, _put_in, _lie, _lie, _repeat, _splice),
)


def damaged(corpus: Sequence[bytes], chance: random.Random) -> bytes:
    """One input."""
    if chance.random() < 1 / 16:
        return chance.randbytes(chance.randrange(80))
    data = bytearray(chance.choice(corpus))
    for _ in range(chance.randrange(1, 5)):
        chance.choice(_DAMAGES)(data, chance, chance.choice(corpus))
    return bytes(data[:_LONGEST])


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What came of some inputs of one decoder. `fault`: why it ended; empty: it did not."""

    decoder: str
    inputs: int
    taken: int
    fault: str = ""


def fuzz(decoder: Decoder, inputs: int, seed: int) -> Found:
    """Tries so many inputs, or a few more."""
    chance = random.Random(f"{decoder.name} {seed}")
    corpus = list(decoder.samples)
    decoder.decode(decoder.samples)
    tried = taken = 0
    while tried < inputs:
        batch = [damaged(corpus, chance) for _ in range(BATCH)]
        try:
            sound = decoder.decode(batch)
        except BaseException:  # noqa: BLE001  # whatever it is, it must be repeatable
            fault = f"{traceback.format_exc()}\n{as_json(decoder, batch)}"
            return Found(decoder=decoder.name, inputs=tried, taken=taken, fault=fault)
        tried += BATCH
        for data, was_sound in zip(batch, sound, strict=True):
            if was_sound:
                taken += 1
                if len(corpus) < _KEPT:
                    corpus.append(data)
                elif chance.random() < 1 / 8:
                    corpus[chance.randrange(len(decoder.samples), _KEPT)] = data
    return Found(decoder=decoder.name, inputs=tried, taken=taken)


def _in_a_process(name: str, inputs: int, seed: int) -> Found:
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    (decoder,) = [d for d in decoders() if d.name == name]
    # Of CPU time: a machine that is busy with other things is no fault.
    signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS * (1 + inputs / _CHUNK))
    signal.signal(signal.SIGPROF, _too_long)
    try:
        return fuzz(decoder, inputs, seed)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _too_long(*_: object) -> None:
    raise TimeoutError("it takes too long")


def shares(chosen: Sequence[Decoder], inputs: int) -> Iterator[tuple[str, int]]:
    """How many each gets, in pieces that are worth a turn."""
    whole = sum(decoder.share for decoder in chosen)
    for decoder in chosen:
        left = round(inputs * decoder.share / whole)
        while left > 0:
            yield decoder.name, min(left, _CHUNK)
            left -= _CHUNK


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Damaged bytes for every decoder.")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="decoders with this in their name")
    options = parser.parse_args(arguments)
    chosen = [d for d in decoders() if options.only in d.name]
    began = time.process_time()
    totals = {d.name: [0, 0] for d in chosen}
    with ProcessPoolExecutor(options.jobs, get_context("spawn")) as pool:
        running = [
            pool.submit(_in_a_process, name, count, options.seed + piece)
            for piece, (name, count) in enumerate(shares(chosen, options.inputs))
        ]
        for future in running:
            found = future.result()
            totals[found.decoder][0] += found.inputs
            totals[found.decoder][1] += found.taken
            if found.fault:
                print(f"{found.decoder}: {found.fault}", flush=True)
                pool.shutdown(cancel_futures=True)
                return 1
    print("| decoder | inputs | taken for sound |\n|---|---|---|")
    rows: dict[str, list[int]] = {}
    for name, counts in totals.items():
        row = rows.setdefault(_VERSION.sub(" answer, every version", name), [0, 0])
        row[:] = map(sum, zip(row, counts, strict=True))
    for name, (inputs, taken) in rows.items():
        print(f"| {name} | {inputs:,} | {taken:,} |")
    print(f"| **all** | **{sum(i for i, _ in rows.values()):,}** | |")
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = time.process_time() - began + children.ru_utime + children.ru_stime
    print(f"\nNo fault; {spent:.0f} s of CPU time; seed {options.seed}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())

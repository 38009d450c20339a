"""Hostile inputs by mutation: true inputs, cut, joined, repeated and filled with characters that break readers. Seeded, so that a failure
can be repeated; a thousand times faster than a strategy of Hypothesis, which searches for the smallest example instead."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

_NASTY: tuple[bytes, ...] = (
    b"\x00", b"\xff", b"\xed\xa0\x80", b"\xc3", b"\n", b"\r\n", b"\x1b[2J", b"\\u0000", b"\\ud800", b"\\xff", "\u202e".encode(),
    b"-1", b"0", b"1e308", b"1e999", b"NaN", b"-Infinity", b"9" * 19, b"9" * 400, b"0x7fffffffffffffff", b"1_000",
    b"null", b"true", b"[]", b"{}", b'""', b"[" * 200, b'{"a":' * 60, b'"', b"{", b"}", b",", b":", b";", b"=", b" ", b"\\",
    b"../../etc/passwd", b"/", b"//", b"/dev/zero", b"%s%n", b"A" * 300, b"(PCI:0000:3b:00): ", b"NVRM: Xid ", b"79, ", b"pid=",
)  # fmt: skip
"""Pieces that are put in anywhere."""
_MOST_BYTES = 16_384


class Mutator:
    """Draws inputs for ever. ``corpus``: true inputs, none empty."""

    def __init__(self, seed: int, corpus: Sequence[bytes]) -> None:
        self._chance = random.Random(seed)
        self._corpus = tuple(corpus)
        self._words = tuple(sorted({word for each in corpus for word in each.replace(b'"', b" ").split() if word}))

    def inputs(self, count: int) -> Iterator[bytes]:
        """This many inputs. One in fifty is a true one, to check that valid input is still accepted."""
        for _ in range(count):
            drawn = self._chance.choice(self._corpus)
            if self._chance.random() > 0.02:
                for _ in range(self._chance.choice((1, 1, 1, 2, 3, 8))):
                    drawn = self._changed(drawn)
            yield drawn[:_MOST_BYTES]

    def _changed(self, data: bytes) -> bytes:
        chance = self._chance
        at, end = sorted((chance.randrange(len(data) + 1), chance.randrange(len(data) + 1)))
        match chance.randrange(8):
            case 0:  # another byte
                return data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 1:  # something nasty, in place of a part or between
                return data[:at] + chance.choice(_NASTY) + data[chance.choice((at, end)) :]
            case 2:  # cut off
                return data[:at]
            case 3:  # a part is missing
                return data[:at] + data[min(end, at + chance.randrange(1, 24)) :]
            case 4:  # a part twice, or many times
                return data[:end] + data[at:end][:64] * chance.choice((1, 1, 30)) + data[end:]
            case 5:  # a word of another input
                return data[:at] + chance.choice(self._words) + data[end if end - at < 40 else at :]
            case 6:  # the end of another input
                other = chance.choice(self._corpus)
                return data[:at] + other[chance.randrange(len(other)) :]
            case _:  # noise
                return data[:at] + chance.randbytes(chance.randrange(1, 16)) + data[at:]

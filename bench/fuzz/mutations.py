"""Damage to frames: flipped bits, odd numbers, cuts, tails, splices, and now and then a length that is not the frame's.

Rules: everything comes from the one generator given, so that a seed gives the same frames. Most frames keep a correct
length prefix, because otherwise nothing behind the framing would ever be reached; a batch inside a Produce request gets
its checksum corrected half of the time, because otherwise nothing behind the checksum would.
"""

import random
import struct
from collections.abc import Callable
from typing import Final

from crc32c import crc32c

from bench.fuzz.corpus import Corpus, Request

_UNTOUCHED_SHARE: Final = 0.1
_WRONG_LENGTH_SHARE: Final = 0.02
_OTHER_HEADER_SHARE: Final = 0.02
_RESEALED_SHARE: Final = 0.5
_HEADER_BYTES: Final = 12
_ODD_NUMBERS: Final = (
    *(struct.pack(">b", value) for value in (0, -1, 127, -128)),
    *(struct.pack(">h", value) for value in (-1, 32767, -32768, 255)),
    *(struct.pack(">i", value) for value in (-1, 2**31 - 1, -(2**31), 65536)),
    *(struct.pack(">q", value) for value in (-1, 2**63 - 1, -(2**63), 2**32)),
    b"\xff\xff\xff\xff\x0f",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01",
    bytes(4),
)

_Damage = Callable[[bytearray], None]


class Mutator:
    """An endless supply of damaged frames."""

    def __init__(self, chance: random.Random, corpus: Corpus) -> None:
        self._chance = chance
        self._corpus = corpus
        self._kinds: tuple[_Damage, ...] = (
            self._flip_bits,
            self._flip_bits,
            self._put_odd_number,
            self._put_odd_number,
            self._set_bytes,
            self._cut_end,
            self._add_tail,
            self._splice,
            self._remove_piece,
            self._repeat_piece,
        )

    def frames(self, count: int) -> list[bytes]:
        """This many frames with their length prefixes, in one go."""
        corpus, chance = self._corpus, self._chance
        chosen = chance.choices(corpus.requests, corpus.weights, k=count)
        return [self._frame(chance.choice(variants)) for variants in chosen]

    def _frame(self, request: Request) -> bytes:
        chance = self._chance
        if chance.random() < _UNTOUCHED_SHARE:
            return request.frame
        content = bytearray(request.frame[4:])
        if request.batch_bytes and chance.random() < _RESEALED_SHARE:
            self._damage_batch(content, request)
        else:
            for _ in range(chance.choice((1, 1, 1, 2, 3))):
                chance.choice(self._kinds)(content)
        if chance.random() < _OTHER_HEADER_SHARE and len(content) >= 4:
            content[:4] = struct.pack(">hh", chance.randrange(-2, 95), chance.randrange(-2, 20))
        return self._prefix(len(content)) + content

    def _prefix(self, size: int) -> bytes:
        chance = self._chance
        if chance.random() < _WRONG_LENGTH_SHARE:
            size = chance.choice((size - 1, size + 1, size * 2, 0, -1, 2**31 - 1, -(2**31), 104_857_601))
        return struct.pack(">i", size)

    def _damage_batch(self, content: bytearray, request: Request) -> None:
        """Change the batch within its length and give it the checksum that then fits."""
        start = request.batch_at - 4
        batch = bytearray(content[start : start + request.batch_bytes])
        size = len(batch)
        for _ in range(self._chance.choice((1, 1, 2, 4))):
            self._chance.choice((self._flip_bits, self._put_odd_number, self._set_bytes))(batch)
        batch = batch[:size] + bytes(size - len(batch[:size]))
        if self._chance.random() < 0.8:
            struct.pack_into(">i", batch, 8, size - 12)
            batch[16] = 2
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
        content[start : start + request.batch_bytes] = batch

    # --- kinds of damage; most spare the header, so that the request still reaches its handler

    def _position(self, content: bytearray) -> int:
        first = _HEADER_BYTES if len(content) > _HEADER_BYTES and self._chance.random() < 0.9 else 0
        return self._chance.randrange(first, len(content)) if len(content) > first else 0

    def _flip_bits(self, content: bytearray) -> None:
        if content:
            for _ in range(self._chance.choice((1, 1, 2, 8))):
                content[self._position(content)] ^= 1 << self._chance.randrange(8)

    def _set_bytes(self, content: bytearray) -> None:
        if content:
            position = self._position(content)
            count = min(self._chance.randrange(1, 9), len(content) - position)
            content[position : position + count] = self._chance.randbytes(count)

    def _put_odd_number(self, content: bytearray) -> None:
        number = self._chance.choice(_ODD_NUMBERS)
        position = self._position(content)
        content[position : position + len(number)] = number

    def _cut_end(self, content: bytearray) -> None:
        if content:
            del content[self._position(content) :]

    def _add_tail(self, content: bytearray) -> None:
        content += self._chance.randbytes(self._chance.choice((1, 3, 50)))

    def _splice(self, content: bytearray) -> None:
        other = self._chance.choice(self._chance.choice(self._corpus.requests)).frame
        start = self._chance.randrange(len(other))
        piece = other[start : start + self._chance.randrange(1, 40)]
        position = self._position(content)
        replaced = self._chance.choice((0, len(piece)))
        content[position : position + replaced] = piece

    def _remove_piece(self, content: bytearray) -> None:
        if content:
            position = self._position(content)
            del content[position : position + self._chance.randrange(1, 12)]

    def _repeat_piece(self, content: bytearray) -> None:
        if content:
            position = self._position(content)
            piece = content[position : position + self._chance.randrange(1, 30)]
            content[position:position] = piece * self._chance.choice((1, 2, 20))

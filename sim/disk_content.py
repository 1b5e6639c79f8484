"""One file of a simulated disk: what programs see of it, what the device holds, and what damage does to both.

`sync` makes the second the first. After a power loss every page written since is on its own kept, lost or torn at a
sector; the file's size is the old one, the new one or one between (pages lost below it read as zeros).

Proved by: tests/unit/sim/test_disk.py
"""

from typing import Final

from martlet.base.randomness import Randomness

SECTOR_BYTES: Final = 512


class SimContent:
    """One file's content, as seen and as durable, and which pages differ."""

    __slots__ = ("content", "cuts", "dirty_pages", "durable", "page_bytes", "rotten")

    def __init__(self, page_bytes: int) -> None:
        self.page_bytes = page_bytes
        self.content = bytearray()
        self.cuts = 0
        """How often something that was there went away or became different."""
        self.durable = b""
        self.dirty_pages: set[int] = set()
        self.rotten: set[int] = set()
        """Bits that `rot` has changed."""

    def as_written(self, *, durable: bool = False) -> bytes | bytearray:
        """The content as it was before `rot`, for judges who want to know what was there."""
        content = self.durable if durable else self.content
        if not self.rotten:
            return content
        whole = bytearray(content)
        for bit in self.rotten:
            if bit // 8 < len(whole):
                whole[bit // 8] ^= 1 << (bit % 8)
        return whole

    # What programs do.

    def write(self, data: bytes, position: int) -> None:
        """Put the data there, after zeros where the file does not reach that far."""
        content = self.content
        if not data:
            return
        if position > len(content):
            content.extend(bytes(position - len(content)))
        content[position : position + len(data)] = data
        first = position // self.page_bytes
        self.dirty_pages.update(range(first, (position + len(data)) // self.page_bytes + 1))

    def resize(self, size: int) -> None:
        """Truncate, or lengthen with zeros."""
        before = len(self.content)
        if size < before:
            del self.content[size:]
            self.cuts += 1
            self.rotten = {bit for bit in self.rotten if bit // 8 < size}
        else:
            self.content.extend(bytes(size - before))
        first = min(size, before) // self.page_bytes
        self.dirty_pages.update(range(first, max(size, before) // self.page_bytes + 1))

    def sync(self) -> None:
        """All of it is on the device."""
        self.durable = bytes(self.content)
        self.dirty_pages.clear()

    # Damage at rest, on the device too.

    def flip_bit(self, bit: int) -> None:
        """One bit is the other one."""
        self.content[bit // 8] ^= 1 << (bit % 8)
        self._damaged()

    def rot(self, bit: int) -> None:
        """The same, and the file remembers it: see `as_written`."""
        self.flip_bit(bit)
        self.rotten ^= {bit}

    def overwrite(self, position: int, data: bytes) -> None:
        """Other bytes stand there."""
        self.content[position : position + len(data)] = data
        self._damaged()

    def shorten(self, size: int) -> None:
        """The file ends earlier."""
        del self.content[size:]
        self._damaged()
        self.dirty_pages.clear()

    def _damaged(self) -> None:
        self.cuts += 1
        self.durable = bytes(self.content)

    # A power loss.

    def settle(self, randomness: Randomness) -> None:
        """Decide what the device holds of a file whose pages were not all synced."""
        if self.dirty_pages:
            old, new = self.durable, bytes(self.content)
            size = _settled_size(len(old), len(new), randomness)
            result = bytearray(old[:size].ljust(size, b"\0"))
            for page in sorted(self.dirty_pages):
                self._settle_page(page, new, result, randomness)
            self.content = result
            self.cuts += 1
        self.sync()

    def _settle_page(self, page: int, new: bytes, result: bytearray, randomness: Randomness) -> None:
        page_bytes = self.page_bytes
        start, end = page * page_bytes, min((page + 1) * page_bytes, len(result), len(new))
        fate = randomness.below(3)
        if fate == 2:
            sectors = randomness.below(page_bytes // SECTOR_BYTES + 1) if page_bytes >= SECTOR_BYTES else 0
            end = min(end, start + sectors * SECTOR_BYTES)
        if fate and start < end:
            result[start:end] = new[start:end]


def _settled_size(old: int, new: int, randomness: Randomness) -> int:
    fate = randomness.below(3)
    if fate == 2:
        low, high = min(old, new), max(old, new)
        return low + randomness.below(high - low + 1)
    return old if fate else new

"""Which bytes of a segment can be relied on: what is known to be damaged, and what has yet to be checked.

Rules: knows positions and offsets only; walking over batches, which finds damage, is the segment's. Stretches of damage
are in order and do not overlap.
Proved by: tests/unit/log/test_segment.py, tests/unit/log/test_unchecked_bytes.py
"""

from collections.abc import Collection

from martlet.base.errors import LogDamaged
from martlet.log.batch_order import NO_LIMIT
from martlet.log.batch_survey import Damage
from martlet.log.unchecked_bytes import UncheckedBytes


class SegmentTrust:
    """Owned by one segment; `size` is that of the file as it was found."""

    __slots__ = ("_base_offset", "_path", "damage", "unchecked")

    def __init__(self, path: str, base_offset: int, size: int) -> None:
        self._path = path
        self._base_offset = base_offset
        self.damage: tuple[Damage, ...] = ()
        """The stretches that hold no sound batch, as far as they have been found."""
        self.unchecked = UncheckedBytes(path, size, base_offset) if size else None
        """The bytes that another process wrote, until all of them have been checked otherwise."""

    # Checking.

    def checked_from(self, position: int) -> None:
        """The checksums of all batches from `position` on hold."""
        if self.unchecked is not None:
            self.unchecked.trust_from(position)
            if not self.unchecked.end:
                self.unchecked = None

    def unchecked_in(self, position: int, size: int) -> UncheckedBytes | None:
        """What has to be checked when these bytes are read; None when they can be relied on."""
        unchecked = self.unchecked
        return unchecked if unchecked is not None and unchecked.covers(position, size) else None

    def distrust(self, size: int) -> None:
        """Have all of the file checked again."""
        if size:
            self.unchecked = UncheckedBytes(self._path, size, self._base_offset)

    def surveyed(self, size: int) -> None:
        """The whole file has been surveyed, and all its damage is noted."""
        self.distrust(size)
        if self.unchecked is not None:
            self.unchecked.all_is_known(self.damage)

    @property
    def is_surveyed(self) -> bool:
        """Whether nothing is left to be checked."""
        return self.unchecked is None or self.unchecked.next_offset == NO_LIMIT

    # Damage.

    def note_damage(self, damage: Collection[Damage]) -> None:
        """These are the stretches that hold no sound batch."""
        self.damage = tuple(damage)

    def cut(self, size: int) -> None:
        """The file ends there now."""
        self.damage = tuple(damage for damage in self.damage if damage.end <= size)
        self.checked_from(size)

    def ends_damaged(self, size: int) -> bool:
        """Whether damage reaches to the end of a file of that size."""
        return any(damage.end >= size for damage in self.damage)

    def sound_until(self, start: int, stop: int) -> int:
        """`stop`, or where the first known damage behind `start` is: what is read at once must not step over any."""
        return min([stop, *(damage.position for damage in self.damage if damage.position > start)])

    def next_damage(self, position: int, due: int) -> Damage | None:
        """The first stretch known to be damaged that a walk has before it, at `position` and with `due` to come."""
        for damage in self.damage:
            if damage.position >= position and (damage.end > position or damage.next_offset > due):
                return damage
        return None

    def damage_of(self, offset: int) -> Damage | None:
        """The stretch for which that offset cannot be read."""
        for damage in self.damage:
            if damage.covers(offset):
                return damage
        return None

    def error(self, damage: Damage) -> LogDamaged:
        """The error for an offset that cannot be read."""
        return LogDamaged(f"{self._path}: {damage}")

    def error_at(self, position: int, offset: int, what: str) -> LogDamaged:
        """The error for bytes that should be batches and are not."""
        return LogDamaged(f"{self._path}: damaged at byte {position}, near offset {offset}: {what}")

"""A position in bytes that moves on with every value read: for formats that are small and read field by field.

Nothing is decided here; the rules are those of `wire.primitives`, whose readers this wraps: a value that is not there,
or that the protocol does not allow, is a ProtocolViolation, and no length is believed that the bytes cannot hold.
Request and response bodies are not read this way: `wire.message_codec` generates faster code for those.

Proved by: tests/unit/wire/test_cursor.py
"""

from typing import TypeVar

from martlet.base.errors import ProtocolViolation
from martlet.wire import primitives
from martlet.wire.primitives import Buffer

T = TypeVar("T")


class Cursor:
    """Reads `data` from `position` on."""

    __slots__ = ("data", "position")

    def __init__(self, data: Buffer, position: int = 0) -> None:
        self.data = data
        self.position = position

    @property
    def at_end(self) -> bool:
        """Whether everything has been read."""
        return self.position >= len(self.data)

    def int8(self) -> int:
        return self._move(primitives.read_int8(self.data, self.position))

    def int16(self) -> int:
        return self._move(primitives.read_int16(self.data, self.position))

    def int32(self) -> int:
        return self._move(primitives.read_int32(self.data, self.position))

    def int64(self) -> int:
        return self._move(primitives.read_int64(self.data, self.position))

    def uuid(self) -> bytes:
        return self._move(primitives.read_uuid(self.data, self.position))

    def string(self, *, compact: bool = False) -> str:
        read = primitives.read_compact_string if compact else primitives.read_string
        return self._move(read(self.data, self.position))

    def nullable_string(self, *, compact: bool = False) -> str | None:
        read = primitives.read_compact_nullable_string if compact else primitives.read_nullable_string
        return self._move(read(self.data, self.position))

    def blob(self, *, compact: bool = False) -> bytes:
        read = primitives.read_compact_bytes if compact else primitives.read_bytes
        return self._move(read(self.data, self.position))

    def nullable_blob(self) -> bytes | None:
        return self._move(primitives.read_nullable_bytes(self.data, self.position))

    def count(self, element_bytes_min: int, *, compact: bool = False) -> int:
        """The number of elements of an array that may not be null."""
        start = self.position
        count = self.nullable_count(element_bytes_min, compact=compact)
        if count < 0:
            raise ProtocolViolation(f"a null array at byte {start}, where there may be none")
        return count

    def nullable_count(self, element_bytes_min: int, *, compact: bool = False) -> int:
        """The number of elements of an array; -1 for a null one."""
        read = primitives.read_compact_array_count if compact else primitives.read_array_count
        return self._move(read(self.data, self.position, element_bytes_min))

    def skip_tagged_fields(self) -> None:
        """Move over a tagged section of which nothing is wanted."""
        self.position = primitives.skip_tagged_fields(self.data, self.position)

    def tagged_fields(self) -> "dict[int, Cursor]":
        """The fields of a tagged section by their tags, each to be read on its own."""
        count = self._move(primitives.read_tagged_count(self.data, self.position))
        fields: dict[int, Cursor] = {}
        tag = -1
        for _ in range(count):
            tag, end, start = primitives.read_tag(self.data, self.position, tag)
            fields[tag] = Cursor(self.data[start:end])
            self.position = end
        return fields

    def expect_end(self) -> None:
        """A ProtocolViolation when there is more."""
        if not self.at_end:
            raise ProtocolViolation(f"{len(self.data) - self.position} bytes follow where the value should end")

    def _move(self, read: tuple[T, int]) -> T:
        value, self.position = read
        return value

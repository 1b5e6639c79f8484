"""What the hand-written codecs of Produce and Fetch share: counts, the naming of topics, the budget of elements.

Rules: nothing here knows which API or version it serves; whether a layout is flexible and whether topics go by id is
given by the caller.

Proved by: tests/properties/test_produce_fetch_codec.py
"""

from struct import Struct
from typing import Final

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import NO_TOPIC_ID
from martlet.wire.primitives import (
    read_array_count,
    read_compact_array_count,
    read_compact_string,
    read_string,
    read_uuid,
    skip_tagged_fields,
    underflow,
    write_compact_string,
    write_string,
    write_uvarint,
)

ELEMENTS_MAX: Final = 200_000
"""Topics, partitions and what hangs on them that one message may name: a small frame must not become a large heap."""

_INT32: Final = Struct(">i")


def read_count(view: memoryview, position: int, flexible: bool, element_bytes_min: int) -> tuple[int, int]:
    """The number of elements of an array, -1 for null; refused when the bytes left cannot hold them."""
    return (read_compact_array_count if flexible else read_array_count)(view, position, element_bytes_min)


def write_count(out: bytearray, flexible: bool, count: int) -> None:
    """The number of elements of an array, or the length of records; -1 for null."""
    if flexible:
        write_uvarint(out, count + 1)
    else:
        out += _INT32.pack(count)


def spend(budget: int, count: int) -> int:
    """What is left of a message's elements after `count` more; refuses null, which none of these arrays may be."""
    if count < 0:
        raise ProtocolViolation("null instead of an array")
    if count > budget:
        raise ProtocolViolation(f"more than {ELEMENTS_MAX} topics and partitions in one message")
    return budget - count


def read_topic(view: memoryview, position: int, flexible: bool, by_id: bool) -> tuple[str | None, bytes | None, int]:
    """Name or id of a topic, and the position after it."""
    if by_id:
        topic_id, position = read_uuid(view, position)
        return None, topic_id, position
    name, position = (read_compact_string if flexible else read_string)(view, position)
    return name, None, position


def write_topic(out: bytearray, flexible: bool, by_id: bool, name: str | None, topic_id: bytes | None) -> None:
    """The topic's id or its name."""
    if by_id:
        out += topic_id or NO_TOPIC_ID
    elif flexible:
        write_compact_string(out, name or "")
    else:
        write_string(out, name or "")


def check_end(position: int, end: int) -> None:
    """A message must end where its bytes do."""
    if position != end:
        raise ProtocolViolation(f"{end - position} bytes after the end of the message")


def check_value_end(position: int, end: int) -> None:
    """A tagged field's value must be as long as its size says."""
    if position != end:
        raise ProtocolViolation(f"a tagged field's value ends at byte {position} instead of {end}")


def write_tagged_pair(out: bytearray, tag: int, layout: Struct, pair: tuple[int, int]) -> None:
    """A tagged field holding a structure of two integers."""
    out += bytes((tag, layout.size + 1))
    out += layout.pack(*pair)
    out.append(0)


def read_tagged_pair(view: memoryview, position: int, end: int, layout: Struct) -> tuple[int, int]:
    """The two integers of such a field, whose value lies between `position` and `end`."""
    if position + layout.size > end:
        underflow(position)
    first, second = layout.unpack_from(view, position)
    check_value_end(skip_tagged_fields(view[:end], position + layout.size), end)
    return first, second

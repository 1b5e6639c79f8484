"""Which partition of its internal topic a group belongs to, by the same arithmetic as Kafka's."""

from typing import Final

_WORD_MASK: Final = 0xFFFF_FFFF
_POSITIVE_MASK: Final = 0x7FFF_FFFF


def java_hash(text: str) -> int:
    """Java's `String.hashCode` as an unsigned 32-bit number: over UTF-16 code units, not characters."""
    units = text.encode("utf-16-le", "surrogatepass")
    value = 0
    for low, high in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _WORD_MASK
    return value


def shard_of(key: str, partition_count: int) -> int:
    """The partition of an internal topic with `partition_count` that holds everything about `key`."""
    return (java_hash(key) & _POSITIVE_MASK) % partition_count

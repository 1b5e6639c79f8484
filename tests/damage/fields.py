"""The fields of a record batch and what can become of one at rest.

Each field with its place and size in the header; the last one is the beginning of the records behind it.
"""

from collections.abc import Callable
from typing import Final

FIELDS: Final = {
    "base_offset": (0, 8),
    "batch_length": (8, 4),
    "partition_leader_epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last_offset_delta": (23, 4),
    "base_timestamp": (27, 8),
    "max_timestamp": (35, 8),
    "producer_id": (43, 8),
    "producer_epoch": (51, 2),
    "base_sequence": (53, 4),
    "record_count": (57, 4),
    "records": (61, 8),
}


def _more(old: bytes, by: int) -> bytes:
    return ((int.from_bytes(old) + by) % (1 << 8 * len(old))).to_bytes(len(old))


CHANGES: Final[dict[str, Callable[[bytes], bytes]]] = {
    "all ones": lambda old: b"\xff" * len(old),
    "zeros": lambda old: bytes(len(old)),
    "one more": lambda old: _more(old, 1),
    "one less": lambda old: _more(old, -1),
    "highest bit": lambda old: bytes([old[0] ^ 0x40]) + old[1:],
    "a million more": lambda old: _more(old, 1_000_000),
}


def changed(batch: bytes, field: str, first_change: int = 0) -> tuple[int, bytes]:
    """Where this field lies in the batch, and what it becomes by the first change from that number on that is one."""
    at, size = FIELDS[field]
    old = batch[at : at + size]
    changes = [*CHANGES.values()]
    for number in range(first_change, first_change + len(changes)):
        new = changes[number % len(changes)](old)
        if new != old:
            return at, new
    raise AssertionError("some change is one")

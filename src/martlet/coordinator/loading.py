"""From the bytes of an internal partition to a machine's records, for loading a shard.

How it works: internal partitions are compacted, so a machine must come to the same state whether or not an older record
of a key is still there. So only the last record of each key in a chunk is decoded, which for a busy group is one in
hundreds.

Decisions: control batches are skipped. A record of a kind that the codec does not know is left alone: a newer version
wrote it, and it stays in the log. A record that cannot be decoded although its batch is sound is logged with its offset
and skipped, whether or not its key can be read: it costs at most the state under one key, and refusing to load would
cost every group of the shard. A batch that is damaged itself raises: how much it held is not known.

Proved by: tests/unit/coordinator/test_loading.py
"""

import logging
from typing import Final, TypeVar

from martlet.base.errors import InvariantViolation, MartletError
from martlet.coordinator.result import RecordCodec
from martlet.wire.batch import iterate_batches
from martlet.wire.primitives import Buffer
from martlet.wire.records.index import RecordIndex, index_records, unpack_batches

logger = logging.getLogger(__name__)

R = TypeVar("R")

UNPACKED_BYTES_MAX: Final = 256 << 20
"""What the batches of one chunk may decompress to; ours are not compressed, those of other tools may be."""


def decode_batches(name: str, data: Buffer, codec: RecordCodec[R], from_offset: int) -> tuple[list[R], int]:
    """The machine's records from `from_offset` on, the last of each key, and the offset after the last whole batch.

    That offset is -1 when there is no whole batch. Raises ApiError(CORRUPT_MESSAGE) for a damaged batch. Touches
    nothing but its arguments: a thread may run it.
    """
    batches = list(iterate_batches(data))
    if not batches:
        return [], -1
    wanted = [(position, header) for position, header in batches if not header.is_control and header.record_count]
    records: list[R] = []
    if wanted:
        unpacked, spans = unpack_batches(data, wanted, max_bytes=UNPACKED_BYTES_MAX)
        index = index_records(unpacked, spans)
        for row in _last_rows(name, unpacked, index, from_offset):
            record = _decode(name, unpacked, index, row, codec)
            if record is not None:
                records.append(record)
    return records, batches[-1][1].next_offset


def _last_rows(name: str, data: bytes, index: RecordIndex, from_offset: int) -> list[int]:
    """The last row of every key, in the order of the log."""
    rows: dict[bytes, int] = {}
    bounds, offsets, null_keys = index.bounds, index.offsets, index.null_keys
    for row in range(index.record_count):
        if offsets[row] < from_offset:
            continue
        if null_keys[row]:
            logger.error("the record at offset %d of %s has no key and is skipped", offsets[row], name)
            continue
        rows[data[bounds[4 * row] : bounds[4 * row + 1]]] = row
    return sorted(rows.values())


def _decode(name: str, data: bytes, index: RecordIndex, row: int, codec: RecordCodec[R]) -> R | None:
    key_start, key_end, value_start, value_end = index.bounds[4 * row : 4 * row + 4]
    try:
        return codec.decode(data[key_start:key_end], None if index.null_values[row] else data[value_start:value_end])
    except InvariantViolation:
        raise
    except (MartletError, ValueError) as error:
        offset = index.offsets[row]
        logger.error("the record at offset %d of %s cannot be read and is skipped: %s", offset, name, error)
        return None

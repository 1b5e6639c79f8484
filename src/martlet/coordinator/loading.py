"""From the bytes of an internal partition to a machine's records, for loading a shard.

How it works: where the partition is compacted, a machine must come to the same state whether or not an older record of
a key is still there. So only the last record of each key in a chunk is decoded, which for a busy group is one in
hundreds. Where records of one key add to each other (`are_deltas`) all of them are.

A record in a producer's transaction is another matter: it takes no place before the transaction is committed. So all
of those are decoded, and the control batches, for a machine that knows of them.

Decisions: for other machines control batches are skipped. A record of a kind that the codec does not know is left
alone: a newer version wrote it, and it stays in the log. A record that cannot be decoded although its batch is sound is
logged with its offset and skipped, whether or not its key can be read: it costs at most the state under one key, and
refusing to load would cost every group of the shard. A batch that is damaged itself raises: how much it held is not
known.

Proved by: tests/unit/coordinator/test_loading.py
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Final, TypeVar

from martlet.base.errors import InvariantViolation, MartletError
from martlet.coordinator.result import OfProducer, RecordCodec, TransactionalCodec
from martlet.wire.batch import BatchHeader, iterate_batches
from martlet.wire.primitives import Buffer
from martlet.wire.records.index import RecordIndex, index_records, unpack_batches

logger = logging.getLogger(__name__)

R = TypeVar("R")

UNPACKED_BYTES_MAX: Final = 256 << 20
"""What the batches of one chunk may decompress to; ours are not compressed, those of other tools may be."""


def decode_batches(
    name: str, data: Buffer, codec: RecordCodec[R], from_offset: int, *, are_deltas: bool = False
) -> tuple[list[R], int]:
    """The machine's records from `from_offset` on, the last of each key, and the offset after the last whole batch.

    That offset is -1 when there is no whole batch. Raises ApiError(CORRUPT_MESSAGE) for a damaged batch. Touches
    nothing but its arguments: a thread may run it.
    """
    batches = list(iterate_batches(data))
    if not batches:
        return [], -1
    knows_producers = isinstance(codec, TransactionalCodec)
    wanted = [
        (position, header)
        for position, header in batches
        if header.record_count and (knows_producers or not header.is_control)
    ]
    records: list[R] = []
    if wanted:
        unpacked, spans = unpack_batches(data, wanted, max_bytes=UNPACKED_BYTES_MAX)
        index = index_records(unpacked, spans)
        producers = _rows_of_producers([header for _, header in wanted]) if knows_producers else {}
        for row in _rows(name, unpacked, index, from_offset, producers, are_deltas=are_deltas):
            record = _decode(name, unpacked, index, row, codec, producers.get(row))
            if record is not None:
                records.append(record)
    return records, batches[-1][1].next_offset


def _rows_of_producers(headers: Sequence[BatchHeader]) -> dict[int, OfProducer]:
    """The rows that are in transactions, with whose; rows follow the batches."""
    producers: dict[int, OfProducer] = {}
    row = 0
    for header in headers:
        if header.is_transactional:
            of = OfProducer(header.producer_id, header.producer_epoch, header.is_control)
            producers.update(dict.fromkeys(range(row, row + header.record_count), of))
        row += header.record_count
    return producers


def _rows(
    name: str,
    data: bytes,
    index: RecordIndex,
    from_offset: int,
    producers: Mapping[int, OfProducer],
    *,
    are_deltas: bool,
) -> list[int]:
    """The rows to decode, in the order of the log: all deltas and all of transactions, else the last of every key."""
    last: dict[bytes, int] = {}
    others: list[int] = []
    bounds, offsets, null_keys = index.bounds, index.offsets, index.null_keys
    for row in range(index.record_count):
        if offsets[row] < from_offset:
            continue
        if null_keys[row]:
            logger.error("the record at offset %d of %s has no key and is skipped", offsets[row], name)
            continue
        if are_deltas or row in producers:
            others.append(row)
        else:
            last[data[bounds[4 * row] : bounds[4 * row + 1]]] = row
    return sorted([*last.values(), *others])


def _decode(
    name: str, data: bytes, index: RecordIndex, row: int, codec: RecordCodec[R], of: OfProducer | None
) -> R | None:
    key_start, key_end, value_start, value_end = index.bounds[4 * row : 4 * row + 4]
    key, value = data[key_start:key_end], None if index.null_values[row] else data[value_start:value_end]
    try:
        if of is not None and isinstance(codec, TransactionalCodec):
            return codec.decode_of_producer(of, key, value)
        return codec.decode(key, value)
    except InvariantViolation:
        raise
    except (MartletError, ValueError) as error:
        offset = index.offsets[row]
        logger.error("the record at offset %d of %s cannot be read and is skipped: %s", offset, name, error)
        return None

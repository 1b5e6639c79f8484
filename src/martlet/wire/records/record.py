"""One object per record, for those who read few: the command line, a search by time, tests.

Rules: a reader of many uses `index.py` and makes no objects.

Proved by: tests/unit/wire/test_records_record.py, tests/properties/test_records.py
"""

from typing import NamedTuple

from martlet.wire.primitives import Buffer
from martlet.wire.records.index import RecordIndex, index_records, unpack_batches


class Record(NamedTuple):
    """A record with its place and time; header names that are not UTF-8 have replacement characters in them."""

    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


def read_records(batch: Buffer, max_bytes: int, *, check_crc: bool = False) -> list[Record]:
    """The records of one batch or several, which may decompress to `max_bytes`.

    Raises CorruptRecords, DecompressionLimit or ApiError(CORRUPT_MESSAGE). The checksum is checked on demand only:
    the log checks it when bytes come in.
    """
    data, spans = unpack_batches(batch, max_bytes=max_bytes, check_crc=check_crc)
    return records_of_index(data, index_records(data, spans))


def records_of_index(data: bytes, index: RecordIndex) -> list[Record]:
    """The indexed records as objects."""
    records = []
    header_row = 0
    bounds = index.bounds
    for row in range(index.record_count):
        at = 4 * row
        key = None if index.null_keys[row] else data[bounds[at] : bounds[at + 1]]
        value = None if index.null_values[row] else data[bounds[at + 2] : bounds[at + 3]]
        header_end = header_row + index.header_counts[row]
        headers = [_header(data, index, header) for header in range(header_row, header_end)]
        header_row = header_end
        records.append(Record(index.offsets[row], index.timestamps[row], key, value, headers))
    return records


def _header(data: bytes, index: RecordIndex, row: int) -> tuple[str, bytes | None]:
    name_start, name_end, value_start, value_end = index.header_bounds[4 * row : 4 * row + 4]
    name = data[name_start:name_end].decode(errors="replace")
    return name, None if index.header_null_values[row] else data[value_start:value_end]

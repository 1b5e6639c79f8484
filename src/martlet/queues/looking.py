"""What is inside batches of the log: what each message says of its delivery, its key, and whether a filter wants it.

Rules: bytes of the log are read as they are: a header that makes no sense was published before the topic looked at
headers, and says nothing. Control batches hold no message. A filter sees texts: keys and headers that are no UTF-8 are
shown to it with replacement characters; a header given twice counts with its last value.

Proved by: tests/unit/queues/test_looking.py
"""

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Final

from martlet.base.errors import ApiError
from martlet.queues.delivery_terms import PLAIN, DeliveryLimits, DeliveryTerms, read_terms
from martlet.queues.features import Features, Seen
from martlet.queues.filters import Filter
from martlet.wire.batch import BatchHeader, iterate_batches
from martlet.wire.primitives import Buffer
from martlet.wire.records.index import RecordIndex, index_records, unpack_batches

OPENED_BYTES_MAX: Final = 64 << 20
"""What the records of the batches of one look may decompress to."""
TAGS_HEADER: Final = "martlet-tags"
"""Its value is a list of texts, with commas between them."""
_NO_LIMITS: Final = DeliveryLimits()


@dataclass(frozen=True, slots=True)
class Look:
    """What has to be found out for one subscription."""

    topic: str
    filter: Filter | None = None
    has_keys: bool = False
    expire_after_ms: int | None = None

    @classmethod
    def for_features(cls, topic: str, features: Features) -> "Look":
        return cls(topic, features.filter, features.has_key_order, features.expire_after_ms)


class BatchLook:
    """One batch, uncompressed and indexed; worth keeping while its messages are looked at one by one."""

    __slots__ = ("_data", "_header_rows", "_index", "first", "last")

    def __init__(self, batch: Buffer, header: BatchHeader) -> None:
        """Raises CorruptRecords, DecompressionLimit, or ApiError(CORRUPT_MESSAGE)."""
        self.first, self.last = header.base_offset, header.last_offset
        self._data, spans = unpack_batches(batch, [(0, header)], max_bytes=OPENED_BYTES_MAX, check_crc=False)
        self._index = index_records(self._data, spans)
        self._header_rows = list(accumulate(self._index.header_counts, initial=0))

    @property
    def size(self) -> int:
        return len(self._data)

    def seen(self, first: int, end: int, look: Look) -> list[Seen]:
        """Its messages from offset `first` to before `end`."""
        offsets = self._index.offsets
        return [self._seen(row, look) for row in range(bisect_left(offsets, first), bisect_left(offsets, end))]

    def _seen(self, row: int, look: Look) -> Seen:
        index, data, offset = self._index, self._data, self._index.offsets[row]
        count = index.header_counts[row]
        if not count and look.filter is None and not look.has_keys and look.expire_after_ms is None:
            return Seen(offset)
        headers = headers_of(data, index, self._header_rows[row], count)
        terms = terms_of(headers, index.timestamps[row])
        key: bytes | None = None
        if not index.null_keys[row]:
            key = data[index.bounds[4 * row] : index.bounds[4 * row + 1]]
        is_wanted = look.filter is None or _is_wanted(look, look.filter, headers, key, terms, _value_bytes(index, row))
        expires_ms = terms.expires_ms
        if look.expire_after_ms is not None:
            own_ms = max(1, index.timestamps[row] + look.expire_after_ms)
            expires_ms = min(expires_ms, own_ms) if expires_ms else own_ms
        return Seen(offset, terms.due_ms, expires_ms, terms.priority, key if look.has_keys else None, is_wanted)


def look_inside(data: Buffer, first: int, end: int, look: Look, skipped: Collection[int] = ()) -> list[Seen]:
    """The messages in whole batches that lie from offset `first` to before `end`, ascending.

    `skipped` are base offsets of batches whose messages do not count, because their transaction was aborted. Raises
    CorruptRecords, DecompressionLimit, or ApiError(CORRUPT_MESSAGE).
    """
    view = memoryview(data)
    return [
        seen
        for position, header in iterate_batches(data)
        if not header.is_control
        and header.base_offset not in skipped
        and header.base_offset < end
        and header.last_offset >= first
        for seen in BatchLook(view[position : position + header.size], header).seen(first, end, look)
    ]


def _value_bytes(index: RecordIndex, row: int) -> int:
    return index.bounds[4 * row + 3] - index.bounds[4 * row + 2]


def headers_of(data: bytes, index: RecordIndex, first: int, count: int) -> list[tuple[bytes, bytes | None]]:
    bounds, nulls = index.header_bounds, index.header_null_values
    return [
        (
            data[bounds[4 * at] : bounds[4 * at + 1]],
            None if nulls[at] else data[bounds[4 * at + 2] : bounds[4 * at + 3]],
        )
        for at in range(first, first + count)
    ]


def terms_of(headers: Sequence[tuple[bytes, bytes | None]], timestamp_ms: int) -> DeliveryTerms:
    """What the headers of a stored message say; nothing if they make no sense."""
    if not headers:
        return PLAIN
    try:
        return read_terms(headers, timestamp_ms, 0, _NO_LIMITS)
    except ApiError:
        return PLAIN


def _is_wanted(
    look: Look,
    condition: Filter,
    headers: Sequence[tuple[bytes, bytes | None]],
    key: bytes | None,
    terms: DeliveryTerms,
    size: int,
) -> bool:
    named: dict[str, str] = {}
    tags: Collection[str] = ()
    for name, value in headers:
        if value is None:
            continue
        text = name.decode("utf-8", "replace")
        if text == TAGS_HEADER:
            tags = frozenset(tag.strip() for tag in value.decode("utf-8", "replace").split(","))
        if text in condition.headers:
            named[text] = value.decode("utf-8", "replace")
    key_text = None if key is None else key.decode("utf-8", "replace")
    return condition.matches(named, tags, key_text, look.topic, terms.priority, size)

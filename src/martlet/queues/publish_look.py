"""What a batch says of the delivery of its messages, read once when it is published, and refused when it is nonsense.

Rules: a message that a topic with features takes can be delivered as it asks: what cannot be read, is too far away, or
contradicts itself is refused with the header, its value and what is allowed, for each message. An empty answer is what
nearly every batch gets, and costs one index of its records.

Proved by: tests/unit/queues/test_publish_look.py
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from martlet.base.errors import ApiError
from martlet.queues.delivery_terms import PREFIX, DeliveryLimits, read_terms
from martlet.queues.looking import OPENED_BYTES_MAX, headers_of
from martlet.wire.batch import BatchHeader
from martlet.wire.primitives import Buffer
from martlet.wire.records.index import RecordIndex, index_records, unpack_batches

_REASONS_MAX: Final = 100
"""Messages of one batch that are told why."""


@dataclass(frozen=True, slots=True)
class TopicDelivery:
    """What a topic allows its messages to say; `features` names what it was asked to look for."""

    features: frozenset[str] = frozenset()
    limits: DeliveryLimits = field(default_factory=DeliveryLimits)
    has_append_time: bool = False
    """Whether the time of a message is when the broker took it."""

    @property
    def has_delay(self) -> bool:
        return "delay" in self.features


class Delayed(NamedTuple):
    """One delayed message of a batch."""

    row: int
    """Its offset, from the base offset of the batch on."""
    due_ms: int


class RefusedTerms(Exception):
    """Some messages of a batch are not acceptable: the number of each, and why."""

    def __init__(self, record_errors: list[tuple[int, str]]) -> None:
        super().__init__(record_errors[0][1])
        self.record_errors = record_errors


def look_at_publish(records: Buffer, header: BatchHeader, topic: TopicDelivery, now_ms: int) -> list[Delayed]:
    """The delayed messages of a batch that was checked; RefusedTerms, or ApiError when its records cannot be read."""
    return _terms(records, header, topic, now_ms, is_new=True)


def look_at_stored(records: Buffer, header: BatchHeader, topic: TopicDelivery) -> list[Delayed]:
    """The same of a batch of the log, which is as it is: what makes no sense says nothing."""
    if header.is_control:
        return []
    return _terms(records, header, topic, 0, is_new=False)


def _terms(records: Buffer, header: BatchHeader, topic: TopicDelivery, now_ms: int, *, is_new: bool) -> list[Delayed]:
    data, spans = unpack_batches(records, [(0, header)], max_bytes=OPENED_BYTES_MAX, check_crc=False)
    index = index_records(data, spans)
    if not len(index.header_bounds):
        return []
    delayed: list[Delayed] = []
    refused: list[tuple[int, str]] = []
    limits = topic.limits if is_new else DeliveryLimits()
    for row, first, count in _rows_with_terms(data, index):
        time_ms = now_ms if is_new and topic.has_append_time else index.timestamps[row]
        try:
            terms = read_terms(headers_of(data, index, first, count), time_ms, now_ms, limits)
        except ApiError as error:
            if is_new and len(refused) < _REASONS_MAX:
                refused.append((row, error.detail))
            continue
        if terms.due_ms:
            delayed.append(Delayed(index.offsets[row] - header.base_offset, terms.due_ms))
    if refused:
        raise RefusedTerms(refused)
    return delayed


def _rows_with_terms(data: bytes, index: RecordIndex) -> list[tuple[int, int, int]]:
    """Row, first header and number of headers of the records that have a header of ours."""
    found: list[tuple[int, int, int]] = []
    bounds, first = index.header_bounds, 0
    for row, count in enumerate(index.header_counts):
        if count and any(data.startswith(PREFIX, bounds[4 * at]) for at in range(first, first + count)):
            found.append((row, first, count))
        first += count
    return found

"""Offsets in open transactions: unseen until the marker, whatever comes in between."""

import pytest

from martlet.base.errors import ApiError, ProtocolViolation
from martlet.coordinator.loading import decode_batches
from martlet.coordinator.result import OfProducer
from martlet.groups.offsets.table import OffsetTable
from martlet.groups.record_codec import GroupRecordCodec
from martlet.groups.records import OffsetCommitted, OffsetPending, OffsetRemoved, OffsetsDecided
from martlet.wire.batch import TRANSACTIONAL_BIT, TransactionMarker, build_batch, build_marker_batch

GROUP, TOPIC = "g", "orders"


def commit(offset: int, at_ms: int = 0, partition: int = 0) -> OffsetCommitted:
    return OffsetCommitted(GROUP, TOPIC, partition, offset, committed_at_ms=at_ms)


def staged(producer_id: int, offset: int, at_ms: int = 0, partition: int = 0) -> OffsetPending:
    return OffsetPending(producer_id, 0, commit(offset, at_ms, partition))


def decided(producer_id: int, is_commit: bool = True) -> OffsetsDecided:
    return OffsetsDecided(producer_id, 1, is_commit)


def table_after(*records: OffsetCommitted | OffsetPending | OffsetsDecided | OffsetRemoved) -> OffsetTable:
    table = OffsetTable()
    for record in records:
        table.replay(record)
    return table


def offset_of(table: OffsetTable, partition: int = 0) -> int | None:
    committed = table.of_topic(GROUP, TOPIC).get(partition)
    return committed.offset if committed is not None else None


def test_a_staged_offset_is_seen_when_its_transaction_is_committed() -> None:
    table = table_after(commit(5), staged(1, 9))
    assert (offset_of(table), table.pending.holds(GROUP, TOPIC, 0)) == (5, True)
    table.replay(decided(2))
    assert table.pending.holds(GROUP, TOPIC, 0)
    table.replay(decided(1))
    assert (offset_of(table), table.pending.holds(GROUP, TOPIC, 0)) == (9, False)


def test_a_staged_offset_is_gone_when_its_transaction_is_aborted() -> None:
    table = table_after(commit(5), staged(1, 9), decided(1, False))
    assert (offset_of(table), len(table.pending)) == (5, 0)


def test_the_last_offset_that_a_transaction_staged_counts() -> None:
    assert offset_of(table_after(staged(1, 9), staged(1, 7), decided(1))) == 7


def test_a_plain_commit_made_meanwhile_wins_and_the_partition_stays_unstable() -> None:
    table = table_after(staged(1, 9, at_ms=10), commit(20, at_ms=11))
    assert (offset_of(table), table.pending.holds(GROUP, TOPIC, 0)) == (20, True)
    table.replay(decided(1))
    assert (offset_of(table), table.pending.holds(GROUP, TOPIC, 0)) == (20, False)


def test_an_offset_restated_by_a_snapshot_overtakes_nothing() -> None:
    assert offset_of(table_after(staged(1, 9, at_ms=10), commit(5, at_ms=3), decided(1))) == 9


def test_of_two_transactions_the_one_that_staged_last_counts_in_whichever_order_they_end() -> None:
    for first, second in ((1, 2), (2, 1)):
        table = table_after(staged(1, 9), staged(2, 11), decided(first))
        assert table.pending.holds(GROUP, TOPIC, 0)
        table.replay(decided(second))
        assert offset_of(table) == 11
    assert offset_of(table_after(staged(1, 9), staged(2, 11), decided(2, False), decided(1))) == 9


def test_removing_an_offset_takes_what_is_staged_with_it() -> None:
    table = table_after(commit(5), staged(1, 9), staged(1, 3, partition=1), OffsetRemoved(GROUP, TOPIC, 0))
    assert not table.pending.holds(GROUP, TOPIC, 0)
    table.replay(decided(1))
    assert (offset_of(table), offset_of(table, 1)) == (None, 3)
    assert len(table_after(staged(1, 9), OffsetRemoved(GROUP, TOPIC, 0)).pending) == 0


def test_a_group_with_nothing_but_staged_offsets_exists() -> None:
    table = table_after(staged(1, 9))
    assert GROUP in table
    assert list(table.group_ids()) == [GROUP]
    assert table.topic_names() == {TOPIC}
    assert table.partitions_of_topic(GROUP, TOPIC) == {0: None}
    table.replay(decided(1, False))
    assert GROUP not in table


# --- in the log


def test_a_log_is_loaded_with_its_transactions() -> None:
    codec = GroupRecordCodec()

    def batch(offset: int, record: OffsetCommitted, of: OfProducer | None = None) -> bytes:
        entry = codec.encode(record)
        assert entry is not None
        fields = [(0, *entry, ())]
        if of is None:
            return build_batch(fields, base_offset=offset)
        return build_batch(
            fields,
            base_offset=offset,
            producer_id=of.producer_id,
            producer_epoch=of.producer_epoch,
            attributes=TRANSACTIONAL_BIT,
        )

    marker = build_marker_batch(
        TransactionMarker(True, 3), producer_id=7, producer_epoch=1, timestamp_ms=0, base_offset=3
    )
    data = batch(0, commit(5)) + batch(1, commit(9), OfProducer(7, 0)) + batch(2, commit(6)) + marker
    records, next_offset = decode_batches("offsets-0", data, codec, 0)
    assert records == [OffsetPending(7, 0, commit(9)), commit(6), OffsetsDecided(7, 1, True, 3)]
    assert next_offset == 4


def test_records_of_transactions_are_written_as_plain_ones_and_markers_as_control_records() -> None:
    codec = GroupRecordCodec()
    assert codec.encode(staged(1, 9)) == codec.encode(commit(9))
    of = OfProducer(1, 0)
    entry = codec.encode(staged(1, 9))
    assert entry is not None
    assert codec.decode_of_producer(of, *entry) == staged(1, 9)
    entry = codec.encode(OffsetsDecided(1, 2, False, 5))
    assert entry == (bytes(4), bytes.fromhex("000000000005"))
    assert codec.decode_of_producer(OfProducer(1, 2, True), *entry) == OffsetsDecided(1, 2, False, 5)


def test_other_records_in_a_transaction_are_left_alone() -> None:
    codec = GroupRecordCodec()
    entry = codec.encode(OffsetRemoved(GROUP, TOPIC, 0))
    assert entry is not None
    assert codec.decode_of_producer(OfProducer(1, 0), *entry) is None
    assert codec.decode_of_producer(OfProducer(1, 0, True), bytes.fromhex("00000003"), b"") is None
    with pytest.raises((ProtocolViolation, ApiError)):
        codec.decode_of_producer(OfProducer(1, 0, True), b"\x00", b"")

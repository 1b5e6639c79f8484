"""Compaction: which batches change and how, when a log is due, and the swap of files step by step."""

from dataclasses import replace

import pytest
from sim.disk import SimDisk

from martlet.base.errors import StorageFailure
from martlet.log.batch_cleaning import DELETE_HORIZON_BIT, BatchCleaner, key_digest, keys_of_batch
from martlet.log.batch_order import COMPACTED as ALLOWED
from martlet.log.batch_order import read_gaps, write_gaps
from martlet.log.compaction_swap import commit_swap, finish_swaps
from martlet.log.file_names import KNOWN_GAPS
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.transaction_cleaning import TransactionCleaning
from martlet.wire.batch import (
    CONTROL_BIT,
    build_batch,
    crc_matches,
    read_batch_header,
    rebuild_batch,
)
from martlet.wire.records.encode import RecordFields
from martlet.wire.records.record import Record, read_records
from tests.unit.log.log_builders import (
    DIRECTORY,
    NOW_MS,
    append,
    batch_of,
    batches_in,
    checkpointed,
    new_disk,
    offsets,
    open_log,
    records_in,
)

COMPACTED = LogOptions(
    segment_bytes=600, index_interval_bytes=200, compact=True, delete=False, delete_retention_ms=1000
)


def keyed(*changes: tuple[bytes | None, bytes | None], timestamp_ms: int = NOW_MS, **fields: int) -> bytes:
    records: list[RecordFields] = [
        (timestamp_ms + number, key, value, (("h", b"1"),)) for number, (key, value) in enumerate(changes)
    ]
    return build_batch(records, base_offset=10, **fields)


def clean(batch: bytes, latest: dict[bytes, int], *, now_ms: int = NOW_MS, must_stay: bool = False) -> bytes | None:
    digests = {key_digest(key): offset for key, offset in latest.items()}
    cleaner = BatchCleaner(
        lambda digest: digests.get(digest, -1), TransactionCleaning(), now_ms=now_ms, delete_retention_ms=1000
    )
    cleaned = cleaner.clean(batch, read_batch_header(batch), must_stay=must_stay)
    if cleaned is not None:
        assert crc_matches(cleaned, 0, read_batch_header(cleaned))
    return cleaned


def records_of(batch: bytes | None) -> list[Record]:
    assert batch is not None
    return read_records(batch, 1 << 20, check_crc=True)


def test_a_batch_that_loses_nothing_stays_as_it_is() -> None:
    batch = keyed((b"a", b"1"), (b"b", b"2"))
    assert clean(batch, {b"a": 10, b"b": 11}) is batch
    assert clean(batch, {}) is batch


@pytest.mark.parametrize("compression", range(5))
def test_superseded_records_go_and_the_rest_keeps_place_and_time(compression: int) -> None:
    batch = keyed((b"a", b"1"), (b"b", b"2"), (b"c", b"3"), compression=compression, producer_id=4, base_sequence=7)
    cleaned = clean(batch, {b"a": 99, b"c": 99})
    assert records_of(cleaned) == [records_of(batch)[1]]
    header, original = read_batch_header(cleaned or b""), read_batch_header(batch)
    assert (header.base_offset, header.last_offset_delta, header.record_count) == (10, 2, 1)
    assert (header.producer_id, header.base_sequence, header.last_sequence) == (4, 7, original.last_sequence)
    assert header.compression == compression
    assert header.max_timestamp == NOW_MS + 1


def test_a_batch_without_survivors_goes_or_stays_as_a_bare_header() -> None:
    batch = keyed((b"a", b"1"), (b"b", b"2"), compression=1)
    assert clean(batch, {b"a": 99, b"b": 99}) is None
    bare = clean(batch, {b"a": 99, b"b": 99}, must_stay=True)
    header = read_batch_header(bare or b"")
    assert (len(bare or b""), header.last_offset, header.record_count, header.compression) == (61, 11, 0, 0)
    assert records_of(bare) == []
    assert clean(bare or b"", {}) is None
    assert clean(bare or b"", {}, must_stay=True) is bare


def test_records_without_a_key_go() -> None:
    assert [record.key for record in records_of(clean(keyed((None, b"1"), (b"b", b"2")), {}))] == [b"b"]


def test_a_tombstone_gets_a_deadline_and_goes_when_it_has_passed() -> None:
    batch = keyed((b"a", None), (b"b", b"2"))
    marked = clean(batch, {})
    header = read_batch_header(marked or b"")
    assert header.attributes & DELETE_HORIZON_BIT
    assert header.base_timestamp == NOW_MS + 1000
    assert header.max_timestamp == NOW_MS + 1
    assert records_of(marked) == records_of(batch), "times are as before"
    assert clean(marked or b"", {}, now_ms=NOW_MS + 999) is marked
    swept = clean(marked or b"", {}, now_ms=NOW_MS + 1000)
    assert records_of(swept) == records_of(batch)[1:]


def test_a_tombstone_under_log_append_time_keeps_the_time_of_the_batch() -> None:
    header = read_batch_header(keyed((b"a", None), timestamp_ms=5))
    plain = keyed((b"a", None), timestamp_ms=5)
    stamped = rebuild_batch(header._replace(attributes=0x08, max_timestamp=777), plain[61:])
    marked = clean(stamped, {})
    assert records_of(marked)[0].timestamp_ms == 777
    assert read_batch_header(marked or b"").max_timestamp == 777


def test_control_batches_and_unreadable_ones_stay() -> None:
    marker = build_batch([(1, b"\0\0\0\5", b"", ())], attributes=CONTROL_BIT)
    broken = rebuild_batch(read_batch_header(keyed((b"a", b"1"))), b"\xff" * 30)
    for batch in (marker, broken):
        assert clean(batch, {b"a": 99}) is batch
        assert keys_of_batch(batch, read_batch_header(batch)) == []


def compacted_log(disk: SimDisk, rounds: int = 6, options: LogOptions = COMPACTED) -> PartitionLog:
    """The same four keys over and over, in segments of which several fit into a new one."""
    log = open_log(disk, options)
    for number in range(rounds):
        for key in (b"a", b"b", b"c", b"d"):
            append(log, batch_of(b"%d" % number * 30, key=key, timestamp_ms=NOW_MS + number))
    log.roller.roll(NOW_MS)
    checkpointed(log)
    log.update_options(replace(options, segment_bytes=4 * options.segment_bytes))
    return log


def run(log: PartitionLog, now_ms: int = NOW_MS) -> bool:
    plan = log.plan_compaction(now_ms, up_to_offset=log.end_offset)
    if plan is None:
        return False
    plan.run()
    return log.compaction.complete(plan)


def test_the_last_record_of_each_key_is_left_in_one_small_segment() -> None:
    log = compacted_log(new_disk())
    assert len(log.segments) > 4
    size = log.segments.size_bytes()
    assert run(log)
    assert [(record.key, record.offset) for record in records_in(log)] == [
        (b"a", 20),
        (b"b", 21),
        (b"c", 22),
        (b"d", 23),
    ]
    assert log.segments.size_bytes() < size / 3
    assert len(log.segments) <= 3
    assert log.compaction.cleaned_offset == 24
    assert (log.log_start_offset, log.end_offset) == (0, 24)


def test_a_reader_in_a_gap_gets_the_next_batch() -> None:
    log = compacted_log(new_disk())
    run(log)
    for offset in range(21):
        content = log.locate(offset, max_bytes=1, end_offset=24, at_least_one=True).read()
        header = read_batch_header(content)
        assert header.last_offset >= offset
        assert header.record_count in (0, 1)


def test_a_clean_log_is_left_alone() -> None:
    log = compacted_log(new_disk())
    run(log)
    assert log.plan_compaction(NOW_MS, up_to_offset=24) is None


def test_only_compacted_topics_are_compacted() -> None:
    log = compacted_log(new_disk(), options=LogOptions(segment_bytes=600))
    assert log.plan_compaction(NOW_MS, up_to_offset=24) is None


def test_the_high_watermark_and_the_recovery_point_bound_compaction() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    assert log.plan_compaction(NOW_MS, up_to_offset=2) is None
    other = open_log(new_disk(), COMPACTED)
    for number in range(20):
        append(other, batch_of(b"%d" % number * 30, key=b"a"))
    assert other.plan_compaction(NOW_MS, up_to_offset=20) is None


def test_a_log_is_due_when_enough_of_it_is_dirty_or_it_has_waited_too_long() -> None:
    log = compacted_log(new_disk())
    run(log)
    append(log, batch_of(b"x", key=b"a", timestamp_ms=NOW_MS + 50))
    log.roller.roll(NOW_MS)
    checkpointed(log)
    log.update_options(LogOptions(compact=True, min_cleanable_dirty_ratio=0.9))
    assert log.plan_compaction(NOW_MS, up_to_offset=25) is None
    log.update_options(LogOptions(compact=True, min_cleanable_dirty_ratio=0.9, max_compaction_lag_ms=100))
    assert log.plan_compaction(NOW_MS + 150, up_to_offset=25) is None
    assert log.plan_compaction(NOW_MS + 151, up_to_offset=25) is not None


def test_young_records_wait_for_their_lag() -> None:
    log = compacted_log(new_disk(), options=COMPACTED)
    log.update_options(LogOptions(segment_bytes=600, compact=True, min_compaction_lag_ms=1000))
    assert log.plan_compaction(NOW_MS + 999, up_to_offset=24) is None
    assert log.plan_compaction(NOW_MS + 2000, up_to_offset=24) is not None


def test_one_plan_at_a_time() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    plan = log.plan_compaction(NOW_MS, up_to_offset=24)
    assert plan is not None
    assert log.plan_compaction(NOW_MS, up_to_offset=24) is None
    disk.flip_bit(f"{DIRECTORY}/00000000000000000000.log", 8 * 70)
    with pytest.raises(StorageFailure, match="damaged"):
        plan.run()
    disk.flip_bit(f"{DIRECTORY}/00000000000000000000.log", 8 * 70)
    assert run(log), "a failed plan does not block the next"


def test_segments_deleted_meanwhile_make_their_group_worthless_only() -> None:
    disk = new_disk()
    log = compacted_log(disk, 20)
    plan = log.plan_compaction(NOW_MS, up_to_offset=log.end_offset)
    assert plan is not None
    plan.run()
    first = plan.groups[0]
    log.advance_log_start(first.segments[1].base_offset)
    log.delete_old_segments(NOW_MS, up_to_offset=log.end_offset)
    assert not log.compaction.complete(plan)
    assert log.compaction.cleaned_offset == 0
    assert [record.key for record in records_in(log)][-4:] == [b"a", b"b", b"c", b"d"]
    assert not [entry for entry in disk.list_directory(DIRECTORY) if entry.name.endswith((".cleaned", ".swap"))]


def test_a_truncation_meanwhile_makes_the_whole_plan_worthless() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    plan = log.plan_compaction(NOW_MS, up_to_offset=24)
    assert plan is not None
    plan.run()
    log.truncate_to(18, now_ms=NOW_MS)
    before = batches_in(log)
    assert not log.compaction.complete(plan)
    assert batches_in(log) == before
    assert not [entry for entry in disk.list_directory(DIRECTORY) if entry.name.endswith(".cleaned")]


def test_appending_goes_on_while_a_plan_runs() -> None:
    log = compacted_log(new_disk())
    plan = log.plan_compaction(NOW_MS, up_to_offset=24)
    assert plan is not None
    append(log, batch_of(b"new", key=b"a"))
    plan.run()
    append(log, batch_of(b"newer", key=b"b"))
    assert log.compaction.complete(plan)
    assert [record.offset for record in records_in(log)] == [20, 21, 22, 23, 24, 25]


def test_a_reader_of_a_replaced_segment_is_not_disturbed() -> None:
    log = compacted_log(new_disk())
    place = log.locate(0, max_bytes=1 << 20, end_offset=24, at_least_one=True)
    before = place.read()
    run(log)
    assert place.read() == before


def test_the_last_batch_of_a_producer_stays() -> None:
    disk = new_disk()
    log = open_log(disk, COMPACTED)
    append(log, batch_of(b"once" * 9, key=b"a", producer=(9, 0, 0)))
    for number in range(30):
        append(log, batch_of(b"%d" % number * 30, key=b"a"))
    log.roller.roll(NOW_MS)
    recovery = checkpointed(log)
    run(log)
    first = read_batch_header(batches_in(log)[0])
    assert (first.producer_id, first.record_count, first.base_offset) == (9, 0, 0)
    for entry in disk.list_directory(DIRECTORY):
        if entry.name.endswith(".snapshot"):
            disk.remove(f"{DIRECTORY}/{entry.name}")
    again = open_log(disk, COMPACTED, recovery)
    assert append(again, batch_of(b"once" * 9, key=b"a", producer=(9, 0, 0))).duplicate


def test_indexes_of_a_compacted_segment_fit_it() -> None:
    disk = new_disk()
    log = compacted_log(disk, 40)
    run(log)
    recovery = checkpointed(log)
    expected = batches_in(log)
    again = open_log(disk, COMPACTED, recovery)
    before = disk.writes
    assert batches_in(again) == expected
    assert again.times_below(160).first_at(NOW_MS + 39) is not None
    assert disk.writes == before


def test_a_committed_swap_is_carried_through_after_a_crash() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    expected = records_in(log)[-4:]
    plan = log.plan_compaction(NOW_MS, up_to_offset=24)
    assert plan is not None
    plan.run()
    base = plan.groups[0].segments[0].base_offset
    path = f"{DIRECTORY}/{base:020d}.log"
    write_gaps(disk, DIRECTORY, ALLOWED)
    disk.rename(f"{path}.cleaned", f"{path}.swap")
    again = open_log(disk, COMPACTED)
    assert records_in(again)[-4:] == expected
    assert len(again.segments) < len(log.segments)
    assert not disk.exists(f"{path}.swap")
    assert not finish_swaps(disk, DIRECTORY, disk.list_directory(DIRECTORY))
    assert records_in(open_log(disk, COMPACTED))[-4:] == expected


def test_a_damaged_swap_file_is_refused_and_kept() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    plan = log.plan_compaction(NOW_MS, up_to_offset=24)
    assert plan is not None
    plan.run()
    path = f"{DIRECTORY}/{0:020d}.log"
    disk.rename(f"{path}.cleaned", f"{path}.swap")
    disk.flip_bit(f"{path}.swap", 8 * 30)
    with pytest.raises(StorageFailure, match=r"swap: damaged at byte 0"):
        open_log(disk, COMPACTED)
    assert disk.exists(f"{path}.swap")
    assert disk.exists(path)


def test_a_swap_removes_exactly_its_sources() -> None:
    disk = new_disk()
    log = compacted_log(disk, 12)
    bases = [segment.base_offset for segment in log.segments]
    plan = log.plan_compaction(NOW_MS, up_to_offset=log.end_offset)
    assert plan is not None
    plan.run()
    group = plan.groups[0]
    mine = [segment.base_offset for segment in group.segments]
    write_gaps(disk, DIRECTORY, ALLOWED)
    commit_swap(disk, DIRECTORY, mine[0], mine)
    left = [int(entry.name[:20]) for entry in disk.list_directory(DIRECTORY) if entry.name.endswith(".log")]
    assert left == [mine[0]] + [base for base in bases if base not in mine]
    assert offsets(batches_in(open_log(disk, COMPACTED)))[-4:] == [44, 45, 46, 47]


def test_that_batches_may_be_missing_is_written_down_again() -> None:
    disk = new_disk()
    log = compacted_log(disk)
    assert run(log)
    log.durability.close()
    checkpoint = checkpointed(log, is_clean=True)
    disk.remove(f"{DIRECTORY}/{KNOWN_GAPS}")  # or by a version that did not write it
    log = open_log(disk, COMPACTED, checkpoint)
    found = len(records_in(log))
    assert read_gaps(disk, DIRECTORY).is_compacted
    log.durability.close()
    log = open_log(disk, COMPACTED, checkpoint._replace(cleaned_offset=0))
    assert len(records_in(log)) == found, "even when the other file that says so is gone"

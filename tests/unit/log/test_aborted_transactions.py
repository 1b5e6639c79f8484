"""Which transactions a log says were aborted: through appends, rolls, restarts, damage, truncation and deletion."""

import pytest
from sim.disk import SimDisk

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.aborted_index import AbortedTransaction
from martlet.log.partition_log import PartitionLog
from martlet.log.replicated_batches import check_replicated
from tests.unit.log.log_builders import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    batch_of,
    batches_in,
    checkpointed,
    close_cleanly,
    marker,
    new_disk,
    open_log,
    transactional,
)


def aborted(log: PartitionLog, from_offset: int = 0, to_offset: int | None = None) -> list[AbortedTransaction]:
    end_offset = log.end_offset if to_offset is None else to_offset
    return log.aborted_transactions(from_offset, end_offset)


def index_file(base_offset: int) -> str:
    return f"{DIRECTORY}/{base_offset:020d}.txnindex"


def written(disk: SimDisk) -> PartitionLog:
    """Offsets 0 to 7 in three segments: producer 1 aborts 0-4 and 6-7, 2 commits 1-3, 3 aborts without data."""
    log = open_log(disk)
    append(log, transactional(1, b"a"))
    append(log, transactional(2, b"b"))
    log.roller.roll(NOW_MS)
    append(log, transactional(1, b"c", sequence=1))
    append(log, marker(2))
    append(log, marker(1, is_commit=False))
    log.roller.roll(NOW_MS)
    append(log, marker(3, is_commit=False))
    append(log, transactional(1, b"d", sequence=2))
    append(log, marker(1, is_commit=False))
    log.high_watermark = log.end_offset
    return log


FIRST, SECOND = AbortedTransaction(1, 0, 4, 5), AbortedTransaction(1, 6, 7, 8)


def test_an_abort_marker_makes_an_entry_where_there_was_data() -> None:
    assert aborted(written(new_disk())) == [FIRST, SECOND]


def test_an_entry_says_where_the_next_undecided_transaction_begins() -> None:
    log = open_log(new_disk())
    append(log, transactional(1, b"a"))
    append(log, transactional(2, b"b"))
    append(log, marker(1, is_commit=False))
    append(log, marker(2, is_commit=False))
    assert aborted(log) == [AbortedTransaction(1, 0, 2, 1), AbortedTransaction(2, 1, 3, 4)]


@pytest.mark.parametrize(
    ("from_offset", "to_offset", "expected"),
    [
        (0, 8, [FIRST, SECOND]),
        (0, 1, [FIRST]),
        (3, 5, [FIRST]),
        (4, 6, [FIRST]),
        (5, 6, []),
        (5, 7, [SECOND]),
        (7, 8, [SECOND]),
        (8, 8, []),
    ],
)
def test_a_reader_gets_those_that_touch_its_offsets(
    from_offset: int, to_offset: int, expected: list[AbortedTransaction]
) -> None:
    assert aborted(written(new_disk()), from_offset, to_offset) == expected


def test_they_come_in_order_of_their_beginnings_whatever_the_order_of_the_markers() -> None:
    log = open_log(new_disk())
    for producer_id in (1, 2, 3):
        append(log, transactional(producer_id, b"v"))
    log.roller.roll(NOW_MS)
    for producer_id in (2, 3, 1):
        append(log, marker(producer_id, is_commit=False))
    assert [one.producer_id for one in aborted(log)] == [1, 2, 3]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_restart_finds_them(is_clean: bool) -> None:
    disk = new_disk()
    log = written(disk)
    known = close_cleanly(log) if is_clean else checkpointed(log)
    assert [disk.exists(index_file(base)) for base in (0, 2, 5)] == [False, True, True]
    found = open_log(disk, checkpoint=known)
    assert aborted(found) == [FIRST, SECOND]
    append(found, transactional(4, b"e"))
    append(found, marker(4, is_commit=False))
    assert aborted(found)[2:] == [AbortedTransaction(4, 8, 9, 10)]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("base_offset", [2, 5])
def test_abort_3_an_index_that_is_gone_hides_nothing(base_offset: int, is_clean: bool) -> None:
    disk = new_disk()
    log = written(disk)
    known = close_cleanly(log) if is_clean else checkpointed(log)
    disk.remove(index_file(base_offset))
    assert aborted(open_log(disk, checkpoint=known)) == [FIRST, SECOND]
    assert disk.exists(index_file(base_offset))


def test_abort_3_segments_from_before_the_first_abort_need_no_index() -> None:
    disk = new_disk()
    known = close_cleanly(written(disk))
    log = open_log(disk, checkpoint=known)
    before = disk.read_bytes
    aborted(log)
    assert disk.read_bytes - before < 150, "no message is read for it"


@pytest.mark.parametrize("at", [16, 43, 61])
@pytest.mark.parametrize("offset", [4, 7])
def test_what_a_damaged_marker_has_aborted_stays_so_and_holds_nobody_back(offset: int, at: int) -> None:
    disk = new_disk()
    log = written(disk)
    append(log, batch_of(b"behind it"))
    log.high_watermark = log.end_offset
    known = checkpointed(log)
    segment = log.segments[log.segments.number_at(offset)]
    disk.flip_bit(segment.path, 8 * (segment.position_of(offset) + at))
    found = open_log(disk, checkpoint=known)
    found.high_watermark = found.end_offset
    assert aborted(found) == [FIRST, SECOND]
    assert found.producers.transactions.stable_below(found.end_offset) == 9


def test_a_crash_without_a_checkpoint_makes_them_again() -> None:
    disk = new_disk()
    written(disk)
    assert aborted(open_log(disk)) == [FIRST, SECOND]


def test_what_was_checkpointed_survives_the_loss_of_power() -> None:
    disk = new_disk()
    log = written(disk)
    known = checkpointed(log)
    for batch in (transactional(5, b"e"), marker(5, is_commit=False)):
        append(log, batch)
    disk.crash("power")
    assert aborted(open_log(disk, checkpoint=known))[:2] == [FIRST, SECOND]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("base", [2, 5])
def test_a_damaged_file_is_made_again_before_anything_is_read_by_it(is_clean: bool, base: int) -> None:
    disk = new_disk()
    log = written(disk)
    known = close_cleanly(log) if is_clean else checkpointed(log)
    whole = disk.read_file(index_file(base))
    disk.flip_bit(index_file(base), 77)
    found = open_log(disk, checkpoint=known)
    assert aborted(found) == [FIRST, SECOND]
    assert disk.read_file(index_file(base)) == whole


def test_a_follower_learns_them_from_the_batches() -> None:
    leader, follower = written(new_disk()), open_log(new_disk())
    follower.append_as_is(check_replicated(b"".join(batches_in(leader))), now_ms=NOW_MS)
    assert aborted(follower) == [FIRST, SECOND]


@pytest.mark.parametrize(
    ("end_offset", "expected"), [(8, [FIRST, SECOND]), (7, [FIRST]), (5, [FIRST]), (4, []), (1, []), (0, [])]
)
def test_a_truncation_takes_the_markers_beyond_it_along(end_offset: int, expected: list[AbortedTransaction]) -> None:
    disk = new_disk()
    log = written(disk)
    known = checkpointed(log)
    log.truncate_to(end_offset, now_ms=NOW_MS)
    assert aborted(log) == expected
    assert aborted(open_log(disk, checkpoint=known)) == expected


def test_a_truncation_into_a_segment_with_a_damaged_file_makes_it_again() -> None:
    disk = new_disk()
    log = open_log(disk, checkpoint=close_cleanly(written(disk)))
    disk.flip_bit(index_file(2), 77)
    log.truncate_to(5, now_ms=NOW_MS)
    assert aborted(log) == [FIRST]


def test_a_log_that_begins_elsewhere_has_none() -> None:
    disk = new_disk()
    log = written(disk)
    log.durability.flush()
    checkpointed(log)
    log.truncate_fully_and_start_at(2, now_ms=NOW_MS)
    assert (aborted(log, 2), disk.exists(index_file(2))) == ([], False)


def test_a_deleted_segment_takes_its_file_along() -> None:
    disk = new_disk()
    log = written(disk)
    checkpointed(log)
    log.advance_log_start(5)
    assert log.delete_old_segments(NOW_MS, up_to_offset=8) == 2
    assert not disk.exists(index_file(2))
    log.deleted_files.noted_start = 5
    log.deleted_files.remove_due(NOW_MS + SMALL.file_delete_delay_ms, log.options.file_delete_delay_ms)
    assert not disk.exists(index_file(2) + ".deleted")
    assert aborted(log, 5) == [SECOND]


def refused(log: PartitionLog, batch: bytearray) -> ErrorCode | None:
    try:
        append(log, batch)
    except ApiError as error:
        return error.code
    return None


def test_a_leader_refuses_a_marker_of_an_older_epoch_or_coordinator() -> None:
    log = open_log(new_disk())
    append(log, transactional(1, b"a", epoch=3))
    assert refused(log, marker(1, epoch=2)) is ErrorCode.INVALID_PRODUCER_EPOCH
    append(log, marker(1, epoch=3, coordinator_epoch=7))
    assert refused(log, marker(1, epoch=3, coordinator_epoch=6)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refused(log, marker(1, epoch=3, coordinator_epoch=7)) is None, "a repeat does no harm"
    assert log.end_offset == 3


def test_the_coordinators_epoch_survives_a_restart() -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, marker(1, coordinator_epoch=7))
    for found in (open_log(disk), open_log(disk, checkpoint=close_cleanly(open_log(disk)))):
        assert refused(found, marker(1, coordinator_epoch=6)) is ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_a_batch_outside_its_producers_transaction_is_refused() -> None:
    log = open_log(new_disk())
    append(log, transactional(1, b"a"))
    assert refused(log, batch_of(b"b", producer=(1, 0, 1))) is ErrorCode.INVALID_TXN_STATE
    assert refused(log, batch_of(b"b", producer=(1, 1, 0))) is ErrorCode.INVALID_TXN_STATE
    append(log, marker(1, is_commit=False))
    assert refused(log, batch_of(b"b", producer=(1, 0, 1))) is None


def test_a_control_batch_without_a_marker_is_refused() -> None:
    log = open_log(new_disk())
    batch = marker(1)
    batch[61:] = b"\xff" * len(batch[61:])
    assert refused(log, batch) is ErrorCode.INVALID_RECORD
    assert log.end_offset == 0

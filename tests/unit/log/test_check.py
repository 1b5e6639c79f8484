"""The check says nothing of healthy directories and names each fault of damaged ones; repair leaves what is sound."""

import shutil
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from sim.failing_device import SimCrash

from martlet.base.disk import Disk, SystemDisk
from martlet.base.ids import TopicId, TopicPartition
from martlet.log.aborted_index import AbortedTransaction, decode_aborted, encode_aborted
from martlet.log.batch_order import read_gaps
from martlet.log.check import Finding, FindingKind, check_log_directory
from martlet.log.file_names import partition_directory
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.repair import repair
from martlet.log.replicated_batches import check_replicated
from martlet.wire.batch import stamp_batch
from tests.damage.cells import CELLS, Cell
from tests.damage.judge import Truth, batches_in, batches_of
from tests.unit.log.log_builders import NOW_MS, PARTITION, append, batch_of, marker, new_disk, transactional

_ROOT = "data/logs"
_LOG = f"{_ROOT}/{partition_directory(PARTITION)}"
_TOPIC_ID = TopicId(b"0123456789abcdef")
_OPTIONS = LogOptions(segment_bytes=1500, index_interval_bytes=300, retention_ms=-1, file_delete_delay_ms=0)
_COMPACT = LogOptions(
    segment_bytes=1500, index_interval_bytes=300, compact=True, delete=False, min_cleanable_dirty_ratio=0.01
)


def _opened(disk: Disk, root: str = _ROOT, options: LogOptions = _OPTIONS) -> LogDirectory:
    directory = LogDirectory(disk, root, options)
    directory.open(NOW_MS)
    return directory


def _fill(log: PartitionLog, batches: int = 45, *, first: int = 0, producer_id: int = 7) -> None:
    for number in range(first, first + batches):
        values = [b"%03d" % number * 8] * (1 + number % 3)
        key, producer = b"%d" % (number % 4), (producer_id, 0, log.end_offset)
        batch = batch_of(*values, key=key, producer=producer, timestamp_ms=NOW_MS + number)
        append(log, batch, leader_epoch=number // 10)


def _fill_with_aborts(log: PartitionLog) -> None:
    """Messages, with an aborted transaction in the second segment and in the last one."""
    for piece in range(3):
        _fill(log, 15, first=15 * piece, producer_id=7 + piece)
        for batch in (transactional(20, b"never", sequence=-1), marker(20, is_commit=False)):
            append(log, batch, leader_epoch=(15 * piece + 14) // 10)
    _fill(log, 8, first=45, producer_id=10)


def _created(directory: LogDirectory, options: LogOptions = _OPTIONS) -> PartitionLog:
    return directory.create(PARTITION, options, topic_id=_TOPIC_ID, now_ms=NOW_MS)


# --- what healthy directories went through


def _nothing(directory: LogDirectory, log: PartitionLog) -> None:
    """Messages that are not flushed yet."""


def _flush(directory: LogDirectory, log: PartitionLog) -> None:
    log.high_watermark = log.end_offset
    log.durability.flush()
    directory.checkpoint()


def _delete_records(directory: LogDirectory, log: PartitionLog) -> None:
    _flush(directory, log)
    log.advance_log_start(33)
    log.delete_old_segments(NOW_MS, up_to_offset=log.end_offset)
    log.deleted_files.remove_due(NOW_MS, log.options.file_delete_delay_ms)


def _expire(directory: LogDirectory, log: PartitionLog) -> None:
    log.update_options(LogOptions(segment_bytes=1500, retention_bytes=2000, file_delete_delay_ms=0))
    log.delete_old_segments(NOW_MS, up_to_offset=log.end_offset)
    log.deleted_files.remove_due(NOW_MS, log.options.file_delete_delay_ms)
    _flush(directory, log)
    log.deleted_files.remove_due(NOW_MS, log.options.file_delete_delay_ms)


def _compact(directory: LogDirectory, log: PartitionLog) -> None:
    _flush(directory, log)
    log.update_options(_COMPACT)
    plan = log.plan_compaction(NOW_MS, up_to_offset=log.end_offset)
    assert plan is not None
    plan.run()
    assert log.compaction.complete(plan)
    assert read_gaps(log._disk, log.directory).is_compacted


def _truncate(directory: LogDirectory, log: PartitionLog) -> None:
    _flush(directory, log)
    log.truncate_to(25, now_ms=NOW_MS)
    batch = batch_of(b"after it")
    append(log, batch, leader_epoch=9)


def _start_elsewhere(directory: LogDirectory, log: PartitionLog) -> None:
    _flush(directory, log)
    log.truncate_fully_and_start_at(1000, now_ms=NOW_MS)
    _copy(directory, log)


def _copy(directory: LogDirectory, log: PartitionLog) -> None:
    """What a follower does, whose leader's log was compacted."""
    for offset in (log.end_offset, log.end_offset + 10):
        batch = batch_of(b"a", b"b")
        stamp_batch(memoryview(batch), 0, offset, 9)
        log.append_as_is(check_replicated(bytes(batch)), now_ms=NOW_MS)


def _move(directory: LogDirectory, log: PartitionLog) -> None:
    """One partition is deleted, one set aside, and one made again in its place."""
    _flush(directory, log)
    other = TopicPartition("other", 0)
    directory.create(other, _OPTIONS, topic_id=_TOPIC_ID, now_ms=NOW_MS)
    directory.set_aside(other)
    directory.delete(PARTITION)
    _fill(_created(directory))


def _roll(directory: LogDirectory, log: PartitionLog) -> None:
    _flush(directory, log)
    log.roller.roll(NOW_MS)


def _abort(directory: LogDirectory, log: PartitionLog) -> None:
    """Transactions of three producers over several segments, the last one open; some are checkpointed."""
    for number in range(30):
        producer_id = 10 + number % 3
        if number % 7 < 5:
            batch = transactional(producer_id, b"%03d" % number * 8, sequence=-1, key=b"%d" % (number % 4))
        else:
            batch = marker(producer_id, is_commit=number % 2 > 0)
        append(log, batch, leader_epoch=5)
        if number == 20:
            _flush(directory, log)


def _abort_and_truncate(directory: LogDirectory, log: PartitionLog) -> None:
    end_offset = log.end_offset
    _abort(directory, log)
    log.truncate_to(end_offset + 10, now_ms=NOW_MS)
    _abort(directory, log)


def _abort_and_compact(directory: LogDirectory, log: PartitionLog) -> None:
    _abort(directory, log)
    for producer_id in (10, 11, 12):
        append(log, marker(producer_id, is_commit=False), leader_epoch=5)
    log.roller.roll(NOW_MS)
    _compact(directory, log)


_LIVES = [
    _nothing,
    _flush,
    _delete_records,
    _expire,
    _compact,
    _truncate,
    _start_elsewhere,
    _copy,
    _move,
    _roll,
    _abort,
    _abort_and_truncate,
    _abort_and_compact,
]


@pytest.mark.parametrize("ending", ["stop", "kill", "noted, then kill"])
@pytest.mark.parametrize("life", _LIVES)
def test_nothing_is_found_in_a_healthy_directory(
    life: Callable[[LogDirectory, PartitionLog], None], ending: str
) -> None:
    disk = new_disk()
    directory = _opened(disk)
    log = _created(directory)
    _fill(log)
    life(directory, log)
    for _ in range(2):
        if ending == "noted, then kill":
            for each in directory:
                each.durability.flush()
            directory.checkpoint()
        directory.close(clean=ending == "stop")
        if ending != "stop":
            disk.crash("process")
        assert list(check_log_directory(disk, _ROOT)) == []
        directory = _opened(disk)
        assert directory.failures == {}


@pytest.mark.parametrize("life", _LIVES)
def test_nothing_is_found_wherever_a_process_was_killed(
    life: Callable[[LogDirectory, PartitionLog], None],
) -> None:
    for changes in range(400):
        disk = new_disk()
        directory = _opened(disk)
        log = _created(directory)
        _fill(log)
        directory.checkpoint()
        disk.stop_after(changes)
        is_over = False
        try:
            life(directory, log)
            directory.close()
            is_over = True
        except SimCrash:
            pass
        disk.crash("process")
        assert list(check_log_directory(disk, _ROOT)) == [], f"killed after {changes} changes"
        again = _opened(disk)
        assert again.failures == {}, f"killed after {changes} changes"
        assert not any(log.damage for log in again), f"killed after {changes} changes"
        if is_over:
            return
    raise AssertionError("it never came to its end")


# --- transactions that no reader would know to be aborted


def _aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return log.aborted_transactions(0, log.end_offset)


@pytest.mark.parametrize("damage", ["gone", "changed", "shorter", "another's"])
def test_an_index_of_aborted_transactions_that_is_not_whole_is_found_and_repaired(damage: str) -> None:
    disk = new_disk()
    directory = _opened(disk)
    log = _created(directory)
    _abort(directory, log)
    expected = _aborted(log)
    assert len(expected) > 2
    directory.close(clean=True)
    first, last = [f"{_LOG}/{name}" for name, _, _ in disk.list_directory(_LOG) if name.endswith(".txnindex")][:2]
    entries = decode_aborted(disk.read_file(last) or b"") or []
    if damage == "gone":
        disk.remove(last)
    elif damage == "changed":
        disk.flip_bit(last, 100)
    else:
        more = entries[-1]._replace(last_offset=entries[-1].last_offset + 1)
        changed = entries[:-1] if damage == "shorter" else [*entries, more]
        disk.remove(last)
        disk.open(last, create=True).append(encode_aborted(changed))
    [finding] = check_log_directory(disk, _ROOT)
    assert (finding.kind, finding.file) == (FindingKind.REBUILT, last)
    repair(disk, _LOG, [finding])
    again = _opened(disk)
    found = again.get(PARTITION)
    assert found is not None
    assert _aborted(found) == expected
    again.close()
    assert list(check_log_directory(disk, _ROOT)) == []
    assert disk.exists(first)


# --- damage that only neighbours tell of


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_leader_epoch_that_was_once_is_found_at_the_end_of_its_segment(is_clean: bool) -> None:
    disk = new_disk()
    directory = _opened(disk)
    log = _created(directory)
    _fill(log)
    _flush(directory, log)
    directory.close(clean=is_clean)
    paths = [f"{_LOG}/{entry.name}" for entry in disk.list_directory(_LOG) if entry.name.endswith(".log")]
    batches = [batch for path in paths for batch in batches_of(path, disk.read_file(path) or b"")]
    last_of_first = [batch for batch in batches if batch.path == paths[0]][-1]
    for batch, epoch in ((last_of_first, 2), (batches[-1], 3)):
        position = batch.position + 12
        disk.overwrite(batch.path, position, epoch.to_bytes(4))
        [finding] = check_log_directory(disk, _ROOT)
        assert (finding.kind, finding.file, finding.position) == (FindingKind.LOST, batch.path, batch.position)
        assert (finding.first_offset, finding.next_offset) == (batch.base_offset, batch.next_offset)
        disk.overwrite(batch.path, position, batch.content[12:16])
        assert list(check_log_directory(disk, _ROOT)) == []


def test_a_first_segment_that_is_gone_is_missed_though_others_were_deleted_before_it() -> None:
    disk = new_disk()
    directory = _opened(disk)
    log = _created(directory)
    _fill(log)
    _delete_records(directory, log)
    _flush(directory, log)
    log.deleted_files.remove_due(NOW_MS, log.options.file_delete_delay_ms)
    directory.close()
    [first, second, *_] = sorted(entry.name for entry in disk.list_directory(_LOG) if entry.name.endswith(".log"))
    disk.remove(f"{_LOG}/{first}")
    [finding] = check_log_directory(disk, _ROOT)
    assert (finding.first_offset, finding.next_offset) == (33, int(second[:20]))


# --- repair


@pytest.fixture(scope="module", params=["stop", "kill"])
def undamaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, bool]:
    """A directory with one filled log, and whether it was stopped cleanly."""
    root = tmp_path_factory.mktemp("undamaged")
    directory = _opened(SystemDisk(), str(root))
    log = _created(directory)
    _fill_with_aborts(log)
    _flush(directory, log)
    directory.close(clean=request.param == "stop")
    return root, request.param == "stop"


def _repair_all(root: Path, findings: list[Finding]) -> None:
    by_partition: dict[TopicPartition | None, list[Finding]] = defaultdict(list)
    for finding in findings:
        by_partition[finding.partition].append(finding)
    for partition, mine in by_partition.items():
        repair(SystemDisk(), str(root / partition_directory(partition)) if partition else str(root), mine)


def _content_from(log: PartitionLog, offset: int) -> bytes:
    return log.locate(offset, max_bytes=300, end_offset=log.end_offset, at_least_one=True).read()


_REPAIRABLE = [
    cell for cell in CELLS if not cell.config and not cell.name.endswith(("unreadable", "a directory", "a file"))
]


@pytest.mark.parametrize("cell", [pytest.param(cell, id=cell.name) for cell in _REPAIRABLE])
def test_repair_gives_up_what_is_lost_and_nothing_else(
    undamaged: tuple[Path, bool], tmp_path: Path, cell: Cell
) -> None:
    root, is_clean = tmp_path / "logs", undamaged[1]
    shutil.copytree(undamaged[0], root)
    files = root / partition_directory(PARTITION)
    whole = Truth(batches_in(files))
    hurt = cell.harm(files, is_clean)
    before = _snapshot_of(files)
    _repair_all(root, list(check_log_directory(SystemDisk(), str(root))))
    left = list(check_log_directory(SystemDisk(), str(root)))
    assert {finding.kind for finding in left} <= {FindingKind.REBUILT}, "what is left a start makes again"
    gaps = read_gaps(SystemDisk(), str(files))
    assert {offset for first, following in gaps.lost for offset in range(first, following)} == hurt.lost
    after = _snapshot_of(files)
    assert all(content in after.values() for content in before.values()), "nothing is destroyed"
    sound = Truth(batch for batch in whole.batches if not hurt.lost.intersection(batch.offsets))
    sound.start_offset = sound.batches[0].base_offset if sound.batches else whole.end_offset
    for start in range(2):
        directory = _opened(SystemDisk(), str(root))
        assert directory.failures == {}
        log = directory.get(PARTITION)
        assert log is not None
        assert (log.damage, log.end_offset) == ([], whole.end_offset + start)
        assert sound.refused(partial(_content_from, log)) == set()
        log.aborted_transactions(0, log.end_offset)  # as a reader of committed messages does
        assert append(log, batch_of(b"new"), leader_epoch=9).base_offset == whole.end_offset + start
        log.assign_topic_id(_TOPIC_ID)  # as a broker does that knows it
        directory.close()
        assert list(check_log_directory(SystemDisk(), str(root))) == []


def _snapshot_of(directory: Path) -> dict[str, bytes]:
    if not directory.is_dir():
        return {}
    return {file.name: file.read_bytes() for file in directory.iterdir() if file.is_file() and ".log" in file.name}

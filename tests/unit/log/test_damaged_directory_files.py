"""Each file of a log directory that speaks of all its logs, damaged in each way: no log loses anything by it.

Driven on the real disk, because some of the ways are the operating system's. The judge is the damage matrix's.
"""

from pathlib import Path

import pytest

from martlet.base.disk import SystemDisk
from martlet.base.errors import StorageFailure
from martlet.base.ids import TopicId, TopicPartition
from martlet.log.check import check_log_directory
from martlet.log.checkpoints import decode_offsets, encode_offsets
from martlet.log.file_names import (
    ASIDE_NOTED,
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    LOSS_FOUND,
    RECOVERY_POINTS,
)
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from tests.damage.cells import FILE_DAMAGE
from tests.damage.judge import Truth, batches_in
from tests.unit.log.log_builders import NOW_MS, append, batch_of

_TOPIC_ID = TopicId(b"0123456789abcdef")
_PLAIN = LogOptions(segment_bytes=1000, index_interval_bytes=200, retention_ms=-1)
_OPTIONS = {
    TopicPartition("plain", 0): _PLAIN,
    TopicPartition("begun", 0): _PLAIN,
    TopicPartition("compacted", 0): LogOptions(
        segment_bytes=1000, index_interval_bytes=200, compact=True, delete=False, min_cleanable_dirty_ratio=0.01
    ),
}
_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANED_OFFSETS, HIGH_WATERMARKS)


def _opened(root: Path) -> LogDirectory:
    directory = LogDirectory(SystemDisk(), str(root), _PLAIN)
    directory.open(NOW_MS, _OPTIONS.__getitem__)
    return directory


def _filled(root: Path, *, is_clean: bool) -> None:
    directory = _opened(root)
    for partition, options in _OPTIONS.items():
        log = directory.create(partition, options, topic_id=_TOPIC_ID, now_ms=NOW_MS)
        for number in range(40):
            append(log, batch_of(b"%03d" % number * 20, key=b"%d" % (number % 3), timestamp_ms=NOW_MS + number))
        log.high_watermark = log.end_offset
        log.durability.flush()
    directory.checkpoint()
    begun, compacted = (directory.get(TopicPartition(name, 0)) for name in ("begun", "compacted"))
    assert begun is not None
    assert compacted is not None
    begun.advance_log_start(25)
    begun.delete_old_segments(NOW_MS, up_to_offset=40)
    plan = compacted.plan_compaction(NOW_MS, up_to_offset=40)
    assert plan is not None
    plan.run()
    assert compacted.compaction.complete(plan)
    directory.checkpoint()
    begun.deleted_files.remove_due(NOW_MS + 1_000_000, begun.options.file_delete_delay_ms)
    directory.close(clean=is_clean)


def _content_from(log: PartitionLog, offset: int) -> bytes:
    return log.locate(offset, max_bytes=300, end_offset=log.end_offset, at_least_one=True).read()


def _judge(root: Path, truths: dict[TopicPartition, Truth]) -> None:
    for start in range(2):
        directory = _opened(root)
        assert directory.failures == {}
        for partition, truth in truths.items():
            log = directory.get(partition)
            assert log is not None
            assert log.end_offset == truth.end_offset + start
            assert log.log_start_offset <= truth.start_offset
            assert truth.refused(lambda offset, log=log: _content_from(log, offset)) == set()  # type: ignore[misc]
            assert append(log, batch_of(b"new")).base_offset == truth.end_offset + start
            log.durability.flush()
        directory.checkpoint()
        directory.close(clean=False)


def _truths(root: Path) -> dict[TopicPartition, Truth]:
    starts = {TopicPartition("begun", 0): 25}
    return {
        partition: Truth(batches_in(root / f"{partition.topic}-0"), start_offset=starts.get(partition, 0))
        for partition in _OPTIONS
    }


def _faulty_files(root: Path) -> list[str]:
    return [finding.file for finding in check_log_directory(SystemDisk(), str(root))]


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", FILE_DAMAGE)
@pytest.mark.parametrize("name", _CHECKPOINTS)
def test_a_damaged_checkpoint_takes_nothing_away(tmp_path: Path, name: str, damage: str, is_clean: bool) -> None:
    _filled(tmp_path, is_clean=is_clean)
    truths = _truths(tmp_path)
    assert _faulty_files(tmp_path) == []
    FILE_DAMAGE[damage](tmp_path / name)
    assert _faulty_files(tmp_path) == [str(tmp_path / name)]
    if damage in ("unreadable", "a directory"):
        with pytest.raises(StorageFailure, match=name):
            _opened(tmp_path)
        return
    _judge(tmp_path, truths)
    assert _faulty_files(tmp_path) == []


@pytest.mark.parametrize("by", [-15, -1, 1, 15, 1000])
@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("name", [RECOVERY_POINTS, CLEANED_OFFSETS, HIGH_WATERMARKS])
def test_a_wrong_number_in_a_checkpoint_never_leads_to_a_wrong_offset(
    tmp_path: Path, name: str, is_clean: bool, by: int
) -> None:
    _filled(tmp_path, is_clean=is_clean)
    truths = _truths(tmp_path)
    path = tmp_path / name
    wrong = {partition: max(0, offset + by) for partition, offset in decode_offsets(path.read_bytes()).items()}
    path.write_bytes(encode_offsets(wrong))
    for _ in range(2):
        directory = _opened(tmp_path)
        for partition, truth in truths.items():
            log = directory.get(partition)
            if log is None:
                assert name in (RECOVERY_POINTS, HIGH_WATERMARKS)
                assert partition in directory.failures
                continue
            assert log.end_offset >= truth.end_offset
            assert truth.refused(lambda offset, log=log: _content_from(log, offset)) == set()  # type: ignore[misc]
        directory.close(clean=False)


@pytest.mark.parametrize("damage", ["changed", "gone", "unreadable"])
@pytest.mark.parametrize("name", [CLEAN_SHUTDOWN, LOSS_FOUND, ASIDE_NOTED])
def test_a_damaged_marker_takes_nothing_away(tmp_path: Path, name: str, damage: str) -> None:
    _filled(tmp_path, is_clean=True)
    truths = _truths(tmp_path)
    (tmp_path / name).write_bytes(b"orders-0.00000000-stray\n")
    FILE_DAMAGE[damage](tmp_path / name)
    if (name, damage) == (ASIDE_NOTED, "unreadable"):
        with pytest.raises(StorageFailure, match=name):
            _opened(tmp_path)
    else:
        _judge(tmp_path, truths)

"""All logs of a directory: starts, stops, checkpoints, creation, deletion, and files that are damaged or foreign."""

from dataclasses import replace
from itertools import count

import pytest
from sim.disk import SimDisk
from sim.failing_device import SimCrash

from martlet.base.errors import ApiError, InvariantViolation, StorageFailure
from martlet.base.ids import TopicId, TopicPartition
from martlet.log.checkpoints import encode_offsets
from martlet.log.file_names import CLEAN_SHUTDOWN
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from tests.unit.log.log_builders import NOW_MS, SMALL, batches_in, fill, new_disk

A, B = TopicPartition("a", 0), TopicPartition("b-1", 7)
TOPIC_ID = TopicId(b"0123456789abcdef")


def start(disk: SimDisk, path: str = "data/logs") -> LogDirectory:
    directory = LogDirectory(disk, path, SMALL)
    directory.open(NOW_MS)
    return directory


def log_of(directory: LogDirectory, partition: TopicPartition) -> PartitionLog:
    log = directory.get(partition)
    assert log is not None
    return log


def with_two_logs(disk: SimDisk) -> LogDirectory:
    directory = start(disk)
    for partition in (A, B):
        fill(directory.create(partition, topic_id=TOPIC_ID, now_ms=NOW_MS), 20)
    return directory


def test_a_clean_stop_is_recognised_once() -> None:
    disk = new_disk()
    with_two_logs(disk).close()
    assert disk.exists(f"data/logs/{CLEAN_SHUTDOWN}")
    directory = start(disk)
    assert directory.started_clean
    assert not disk.exists(f"data/logs/{CLEAN_SHUTDOWN}")
    assert {log.partition: log.end_offset for log in directory} == {A: 40, B: 40}
    assert log_of(directory, B).topic_id == TOPIC_ID
    assert len(directory) == 2
    assert not start(disk).started_clean


def test_a_kill_is_no_clean_stop() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.close(clean=False)
    disk.crash("process")
    again = start(disk)
    assert not again.started_clean
    assert log_of(again, A).end_offset == 40


def test_a_checkpoint_holds_every_partition() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log_of(directory, A).durability.flush()
    log_of(directory, A).advance_log_start(5)
    directory.checkpoint()
    assert disk.read_file("data/logs/recovery-point-offset-checkpoint") == b"0\n2\na 0 40\nb-1 7 0\n"
    assert disk.read_file("data/logs/log-start-offset-checkpoint") == b"0\n1\na 0 5\n"
    assert log_of(directory, A).durability.recovery_point == 40


def test_a_log_start_is_never_written_above_its_recovery_point() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log_of(directory, A).advance_log_start(40)
    directory.checkpoint()
    assert disk.read_file("data/logs/log-start-offset-checkpoint") == b"0\n0\n"


def test_the_log_start_survives_a_restart() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log_of(directory, A).advance_log_start(5)
    directory.close()
    assert log_of(start(disk), A).log_start_offset == 5


def test_an_unchanged_checkpoint_is_not_written_again() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.checkpoint()
    before = disk.writes
    directory.checkpoint()
    assert disk.writes == before


def test_one_log_that_cannot_be_synced_does_not_stop_the_checkpoint_of_others() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    for log in directory:
        log.durability.flush()
    checkpoint = directory.begin_checkpoint()
    disk.fail_next_sync()
    checkpoint.write()
    assert list(checkpoint.failures) == [A]
    directory.complete_checkpoint(checkpoint)
    assert (log_of(directory, A).durability.recovery_point, log_of(directory, B).durability.recovery_point) == (0, 40)
    assert disk.read_file("data/logs/recovery-point-offset-checkpoint") == b"0\n2\na 0 0\nb-1 7 40\n"


def test_a_damaged_partition_is_set_aside_and_the_others_open() -> None:
    disk = new_disk()
    with_two_logs(disk).close()
    last = [entry for entry in disk.list_directory("data/logs/a-0") if entry.name.endswith(".log")][-1]
    bit = 8 * (last.size - 20)
    disk.flip_bit(f"data/logs/a-0/{last.name}", bit)
    before = disk.list_directory("data/logs/a-0")
    disk.remove(f"data/logs/{CLEAN_SHUTDOWN}")
    directory = start(disk)
    assert list(directory.failures) == [A]
    assert directory.get(A) is None
    assert log_of(directory, B).end_offset == 40
    assert disk.list_directory("data/logs/a-0") == before
    directory.checkpoint()
    directory.close()
    assert not disk.exists(f"data/logs/{CLEAN_SHUTDOWN}"), "a stop with a damaged partition is not clean"
    disk.flip_bit(f"data/logs/a-0/{last.name}", bit)
    assert log_of(start(disk), A).end_offset == 40, "its recovery point was kept"


def test_a_broken_recovery_checkpoint_cuts_nothing_but_torn_ends() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.close()
    disk.replace_file("data/logs/recovery-point-offset-checkpoint", b"\0" * 30)
    disk.remove(f"data/logs/{CLEAN_SHUTDOWN}")
    disk.flip_bit("data/logs/a-0/00000000000000000000.log", 8 * 70)
    again = start(disk)
    assert [log_of(again, name).end_offset for name in (A, B)] == [40, 40]
    assert len(log_of(again, A).damage) == 1


def test_other_checkpoints_that_are_broken_cost_only_what_they_know() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log_of(directory, A).advance_log_start(5)
    directory.close()
    for name in ("log-start-offset-checkpoint", "cleaner-offset-checkpoint"):
        disk.replace_file(f"data/logs/{name}", b"nonsense")
    again = start(disk)
    assert not again.failures
    assert log_of(again, A).log_start_offset == 0


@pytest.mark.parametrize("seed", range(8))
def test_a_deleted_log_stays_deleted_and_its_name_can_be_used_again(seed: int) -> None:
    disk = new_disk(seed)
    directory = with_two_logs(disk)
    for log in directory:
        log.durability.flush()
    directory.checkpoint()
    directory.delete(A)
    assert directory.get(A) is None
    fresh = directory.create(A, topic_id=TopicId(b"f" * 16), now_ms=NOW_MS)
    fill(fresh, 2)
    fresh.durability.flush()
    disk.crash("power")
    again = start(disk)
    assert not again.failures
    assert log_of(again, A).end_offset == 4
    assert log_of(again, A).topic_id == b"f" * 16
    assert again.remove_deleted() == 1
    assert [entry.name for entry in disk.list_directory("data/logs") if entry.is_directory] == ["a-0", "b-1-7"]


def test_deleting_twice_and_deleting_nothing_do_no_harm() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.delete(A)
    directory.delete(A)
    directory.create(A, topic_id=TOPIC_ID, now_ms=NOW_MS)
    directory.delete(A)
    assert directory.remove_deleted() == 2
    assert directory.remove_deleted() == 0


def test_a_log_without_owner_is_kept_under_another_name() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    kept_as = directory.set_aside(A)
    assert kept_as is not None
    assert kept_as.endswith("-stray")
    assert disk.exists(f"{kept_as}/00000000000000000000.log")
    assert directory.remove_deleted() == 0
    assert [log.partition for log in start(disk)] == [B]


def test_foreign_files_and_directories_are_left_alone() -> None:
    disk = new_disk()
    with_two_logs(disk).close()
    disk.make_directory("data/logs/lost+found")
    disk.make_directory("data/logs/..-0")
    disk.open("data/logs/a-1", create=True)
    before = disk.list_directory("data/logs")
    directory = start(disk)
    assert len(directory) == 2
    directory.close()
    assert disk.list_directory("data/logs") == before


@pytest.mark.parametrize("topic", ["..", "a/b", "", "x" * 250])
def test_hostile_topics_are_refused(topic: str) -> None:
    disk = new_disk()
    directory = start(disk)
    with pytest.raises(ApiError):
        directory.create(TopicPartition(topic, 0), topic_id=TOPIC_ID, now_ms=NOW_MS)
    assert [entry.name for entry in disk.list_directory("data")] == ["logs"]


def test_a_log_is_created_once() -> None:
    directory = with_two_logs(new_disk())
    with pytest.raises(InvariantViolation):
        directory.create(A, topic_id=TOPIC_ID, now_ms=NOW_MS)


def test_each_log_gets_its_own_settings() -> None:
    disk = new_disk()
    with_two_logs(disk).close()
    options = {A: LogOptions(retention_ms=5), B: LogOptions(retention_ms=6)}
    directory = LogDirectory(disk, "data/logs", SMALL)
    directory.open(NOW_MS, options.__getitem__)
    assert {log.partition: log.options for log in directory} == options


def test_a_stop_that_cannot_sync_is_not_marked_clean() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    disk.fail_next_sync()
    directory.close()
    assert list(directory.failures) == [A]
    assert not disk.exists(f"data/logs/{CLEAN_SHUTDOWN}")
    assert log_of(start(disk), A).end_offset == 40


def test_a_directory_that_cannot_be_synced_does_not_open() -> None:
    disk = new_disk()
    disk.fail_next_sync()
    with pytest.raises(StorageFailure):
        start(disk)


@pytest.mark.parametrize("seed", range(10))
def test_a_first_life_survives_a_power_cut(seed: int) -> None:
    disk = SimDisk(new_disk(seed)._randomness)
    directory = start(disk, "some/where/deep")
    log = directory.create(A, topic_id=TOPIC_ID, now_ms=NOW_MS)
    fill(log, 5)
    log.durability.flush()
    expected = batches_in(log)
    disk.crash("power")
    assert batches_in(log_of(start(disk, "some/where/deep"), A)) == expected


def test_stopping_an_idle_directory_writes_almost_nothing() -> None:
    disk = new_disk()
    with_two_logs(disk).close()
    directory = start(disk)
    before = disk.syncs
    directory.close()
    assert disk.syncs - before <= 2


# --- high watermarks


def test_high_watermarks_are_written_with_the_other_checkpoints_in_kafkas_format() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log_of(directory, A).high_watermark = 12
    directory.checkpoint()
    assert disk.read_file("data/logs/replication-offset-checkpoint") == b"0\n1\na 0 12\n"
    disk.crash("process")
    again = start(disk)
    assert {log.partition: log.high_watermark for log in again} == {A: 12, B: 0}


def test_a_high_watermark_is_never_outside_the_log_it_belongs_to() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    for partition in (A, B):
        log_of(directory, partition).durability.flush()
        log_of(directory, partition).high_watermark = 40
    directory.checkpoint()
    log_of(directory, A).truncate_to(10, now_ms=NOW_MS)
    log_of(directory, B).truncate_fully_and_start_at(90, now_ms=NOW_MS)
    assert [log_of(directory, partition).high_watermark for partition in (A, B)] == [10, 90]
    disk.crash("power")
    again = start(disk)
    assert [log_of(again, partition).high_watermark for partition in (A, B)] == [10, 90]


def test_what_grows_back_after_a_cut_is_not_committed_by_an_older_checkpoint() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log = log_of(directory, A)
    log.durability.flush()
    log.high_watermark = 40
    directory.checkpoint()
    log.truncate_to(10, now_ms=NOW_MS)
    fill(log, 20)
    disk.crash("process")
    assert log_of(start(disk), A).high_watermark == 10


def test_a_broken_checkpoint_of_high_watermarks_commits_nothing() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log_of(directory, A).high_watermark = 12
    directory.close()
    disk.replace_file("data/logs/replication-offset-checkpoint", b"0\n7\n")
    assert log_of(start(disk), A).high_watermark == 0


# --- whether everything is there


def test_a_directory_whose_logs_are_all_there_started_whole() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.checkpoint()
    disk.crash("process")
    again = start(disk)
    assert again.started_whole
    assert not again.started_clean


def test_a_directory_that_lacks_a_log_which_its_checkpoints_name_did_not_start_whole() -> None:
    disk = new_disk()
    with_two_logs(disk).close()
    disk.remove_tree("data/logs/a-0")
    assert not start(disk).started_whole


def test_a_directory_with_a_log_that_ends_before_its_recovery_point_did_not_start_whole() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log_of(directory, A).durability.flush()
    directory.checkpoint()
    directory.close(clean=False)
    last = max(name for name, _, _ in disk.list_directory("data/logs/a-0") if name.endswith(".log"))
    disk.open(f"data/logs/a-0/{last}").truncate(0)
    again = start(disk)
    assert A in again.failures
    assert not again.started_whole
    assert not again.started_kept


@pytest.mark.parametrize("by_owner", [False, True])
def test_a_log_that_ends_below_what_was_committed_has_not_kept_everything(by_owner: bool) -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    log = log_of(directory, A)
    log.durability.flush()
    flushed = log.end_offset
    fill(log, 1)
    log.high_watermark = log.end_offset
    directory.checkpoint()
    if by_owner:
        log.truncate_to(flushed, now_ms=NOW_MS)
    directory.close(clean=False)
    if not by_owner:
        last = max(entry for entry in disk.list_directory("data/logs/a-0") if entry.name.endswith(".log"))
        disk.open(f"data/logs/a-0/{last.name}").truncate(last.size - 1)
    again = start(disk)
    assert again.failures == {}
    assert again.started_kept == by_owner, "what the owner cut off is written down and not missed"


def test_a_directory_with_a_log_that_was_damaged_past_its_recovery_point_did_not_start_whole() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.checkpoint()
    fill(log_of(directory, A), 2)
    disk.crash("process")
    last = max(name for name, _, _ in disk.list_directory("data/logs/a-0") if name.endswith(".log"))
    content = disk.read_file(f"data/logs/a-0/{last}") or b""
    disk.flip_bit(f"data/logs/a-0/{last}", 8 * (len(content) - 1))
    again = start(disk)
    assert again.failures == {}
    assert not again.started_whole
    assert again.started_kept, "a power loss may take as much: nothing flushed is missing"
    assert not start(disk).started_kept, "a start that was not noted has cut it meanwhile: who knows what else"


def damaged_disk() -> SimDisk:
    """A log lies there that was whole once and will be cut."""
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.checkpoint()
    directory.close(clean=False)
    disk.crash("process")
    first = next(entry for entry in disk.list_directory("data/logs/a-0") if entry.name.endswith(".log"))
    disk.flip_bit(f"data/logs/a-0/{first.name}", 8 * 70)
    return disk


def test_damage_that_a_start_mended_is_remembered_until_everybody_concerned_knows() -> None:
    disk = damaged_disk()
    assert not start(disk).started_whole
    again = start(disk)
    assert not again.started_whole, "the start before was killed before it could tell anybody"
    again.loss_is_known()
    assert start(disk).started_whole


def test_damage_is_remembered_whenever_a_start_is_killed_while_it_mends() -> None:
    for changes in count():
        disk = damaged_disk()
        disk.stop_after(changes)
        try:
            start(disk)
        except SimCrash:
            disk.crash("process")
            assert not start(disk).started_whole, f"killed after {changes} changes"
        else:
            break
    assert changes > 10


@pytest.mark.parametrize("failures", [1, 2])
def test_a_log_that_the_device_does_not_let_us_open_is_tried_twice_and_not_lost(failures: int) -> None:
    disk = new_disk()
    with_two_logs(disk).checkpoint()
    disk.crash("process")
    for _ in range(failures):
        disk.fail_next_write()
    again = start(disk)
    assert list(again.failures) == [A][: failures - 1]
    assert again.started_unread == (failures == 2)
    assert again.started_whole, "what could be read is whole"
    later = start(disk)
    assert (later.failures, later.started_unread, later.started_whole) == ({}, False, True)


def test_a_directory_without_readable_recovery_points_did_not_start_whole() -> None:
    disk = new_disk()
    with_two_logs(disk).close()
    disk.replace_file("data/logs/recovery-point-offset-checkpoint", b"?")
    assert not start(disk).started_whole


def test_a_log_set_aside_long_ago_does_not_hide_the_loss_of_the_one_made_in_its_place() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.set_aside(A)
    fill(directory.create(A, topic_id=TOPIC_ID, now_ms=NOW_MS), 3)
    directory.close()
    disk.remove_tree("data/logs/a-0")
    again = start(disk)
    assert not again.started_whole
    assert not again.started_kept


def test_a_log_of_another_topic_set_aside_lately_does_not_hide_a_loss() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    other = TopicPartition("a-0.x", 1)
    directory.create(other, topic_id=TOPIC_ID, now_ms=NOW_MS)
    directory.checkpoint()
    directory.set_aside(other)
    disk.crash("process")
    disk.remove_tree("data/logs/a-0")
    assert not start(disk).started_whole


def test_a_log_deleted_twice_under_the_same_name_is_not_missed() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.delete(A)
    directory.create(A, topic_id=TOPIC_ID, now_ms=NOW_MS)
    directory.checkpoint()
    assert directory.remove_deleted() == 1
    directory.delete(A)
    disk.crash("process")
    assert start(disk).started_whole


def test_a_log_with_the_longest_name_deleted_on_purpose_is_not_missed() -> None:
    disk = new_disk()
    directory = start(disk)
    longest = TopicPartition("t" * 249, 0)
    directory.create(longest, topic_id=TOPIC_ID, now_ms=NOW_MS)
    directory.checkpoint()
    directory.delete(longest)
    disk.crash("process")
    assert start(disk).started_whole


def test_logs_deleted_or_set_aside_on_purpose_since_the_last_checkpoint_are_not_missed() -> None:
    disk = new_disk()
    directory = with_two_logs(disk)
    directory.checkpoint()
    directory.delete(A)
    directory.set_aside(B)
    disk.crash("process")
    again = start(disk)
    assert len(again) == 0
    assert again.started_whole


def test_what_was_deleted_just_before_a_kill_is_not_missed() -> None:
    disk = new_disk()
    directory = start(disk)
    log = directory.create(
        A, replace(SMALL, retention_bytes=0, file_delete_delay_ms=0), topic_id=TOPIC_ID, now_ms=NOW_MS
    )
    fill(log, 40)
    log.durability.flush()
    directory.checkpoint()
    log.delete_old_segments(NOW_MS, up_to_offset=80)
    size = sum(entry.size for entry in disk.list_directory(log.directory))
    assert log.deleted_files.remove_due(NOW_MS, log.options.file_delete_delay_ms) > 0
    assert sum(entry.size for entry in disk.list_directory(log.directory)) < size // 2, "its space is given back"
    again = start(disk)
    assert log_of(again, A).log_start_offset == log.log_start_offset > 0
    assert log_of(again, A).damage == []
    again.checkpoint()
    again_log = log_of(again, A)
    again_log.deleted_files.remove_due(NOW_MS + 1_000_000, again_log.options.file_delete_delay_ms)
    assert not [entry for entry in disk.list_directory(log.directory) if entry.name.endswith(".deleted")]


@pytest.mark.parametrize("starts", [1, 2])
def test_a_first_segment_that_was_never_flushed_is_not_missed(starts: int) -> None:
    disk = new_disk()
    directory = start(disk)
    log = directory.create(A, topic_id=TOPIC_ID, now_ms=NOW_MS)
    fill(log, 1)
    log.roller.roll(NOW_MS)
    disk.remove(f"{log.directory}/{0:020d}.log")  # as a power failure may leave it
    for _ in range(starts):
        again = start(disk)
        assert log_of(again, A).damage == []
        assert log_of(again, A).log_start_offset == 2
        # The recovery point is written, where the log starts is not.
        points = {A: log_of(again, A).durability.recovery_point}
        disk.replace_file("data/logs/recovery-point-offset-checkpoint", encode_offsets(points))

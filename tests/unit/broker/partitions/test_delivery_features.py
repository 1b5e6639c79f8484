"""What a replica knows of delayed messages: kept up with the log, cut with it, read again after whatever happened."""

import pytest
from sim.disk import SimDisk, SimFile
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import TopicPartition
from martlet.broker.partitions.delivery_features import DIRECTORY, DeliveryFeatures
from martlet.log.partition_log import PartitionLog
from martlet.log.replicated_batches import check_replicated
from martlet.queues.delay_index import DelayIndex
from martlet.queues.publish_look import TopicDelivery
from martlet.wire.batch import build_batch, read_batch_header
from tests.unit.broker.following.replica_bench import NOW_MS, content, open_log

DELAYS = TopicDelivery(frozenset(("delay",)))
NAME = TopicPartition("orders", 0)
BEFORE = (-1, -1)


class WithoutSchedules(SimDisk):
    """Takes everything but the files of schedules, while it fails."""

    is_failing = False

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self._refuse(path, is_write=create)
        return super().open(path, create=create)

    def replace_file(self, path: str, content: bytes) -> None:
        self._refuse(path, is_write=True)
        super().replace_file(path, content)

    def _refuse(self, path: str, *, is_write: bool) -> None:
        if self.is_failing and is_write and f"/{DIRECTORY}/" in path:
            raise StorageFailure(f"{path} cannot be written")


class Replica:
    """A log with its features on one disk."""

    def __init__(self, topic: TopicDelivery = DELAYS) -> None:
        self.disk = WithoutSchedules(SimRandomness(1))
        self.log: PartitionLog = open_log(self.disk, NAME)
        self.features = DeliveryFeatures(self.log, self.disk, topic)

    @property
    def schedule(self) -> DelayIndex:
        assert self.features.schedule is not None
        return self.features.schedule

    def publish(self, *delays: int) -> None:
        records = [(NOW_MS, None, b"v", [("martlet-delay-ms", b"%d" % delay)] if delay else []) for delay in delays]
        batch = memoryview(bytearray(build_batch(records)))
        header = read_batch_header(batch)
        delayed = self.features.check(batch, header, NOW_MS)
        appended = self.log.append(batch, header, leader_epoch=1, now_ms=NOW_MS)
        self.features.appended(delayed, appended.base_offset, appended.last_offset)

    def start_again(self) -> None:
        self.features = DeliveryFeatures(self.log, self.disk, DELAYS)

    def listed(self) -> list[tuple[int, int]]:
        while self.features.mend():
            pass
        return [(due_ms - NOW_MS, offset) for due_ms, offset in self.schedule.listed(BEFORE, 1_000)]


def test_delayed_messages_are_listed_by_their_due_times() -> None:
    replica = Replica()
    replica.publish(500, 0, 100)
    replica.publish(300)
    assert replica.listed() == [(100, 2), (300, 3), (500, 0)]
    assert replica.schedule.covered_end == 4


def test_after_a_clean_stop_nothing_is_read_again() -> None:
    replica = Replica()
    replica.publish(500, 0)
    replica.features.close()
    replica.start_again()
    assert replica.schedule.is_complete
    assert replica.listed() == [(500, 0)]


def test_after_a_crash_the_part_that_was_not_written_down_is_read_from_the_log() -> None:
    replica = Replica()
    replica.publish(500, 0)
    replica.schedule.flush()
    for delay in range(1, 60):
        replica.publish(delay)
    replica.start_again()
    assert not replica.schedule.is_complete
    assert replica.listed() == [*((delay, delay + 1) for delay in range(1, 60)), (500, 0)]


def test_a_topic_that_begins_to_have_delays_finds_those_of_its_log() -> None:
    replica = Replica(TopicDelivery(frozenset(("priority",))))
    replica.publish(500, 0, 100)
    assert replica.features.schedule is None
    replica.features.take(DELAYS)
    replica.publish(50)
    assert replica.listed() == [(50, 3), (100, 2), (500, 0)]


def test_damaged_files_are_made_again() -> None:
    replica = Replica()
    replica.publish(500, 0, 100)
    replica.features.close()
    directory = f"{replica.log.directory}/{DIRECTORY}"
    for entry in replica.disk.list_directory(directory):
        replica.disk.overwrite(f"{directory}/{entry.name}", 20, b"\xa5\xa5")
    replica.start_again()
    assert replica.listed() == [(100, 2), (500, 0)]


def test_a_follower_comes_to_the_same_list() -> None:
    leader, follower = Replica(), Replica()
    leader.publish(500, 0)
    leader.publish(100)
    batches = check_replicated(content(leader.log))
    follower.log.append_as_is(batches, now_ms=NOW_MS)
    follower.features.replicated(batches)
    assert follower.listed() == leader.listed()


def test_what_is_cut_off_the_log_is_no_longer_scheduled() -> None:
    replica = Replica()
    replica.publish(500)
    replica.publish(100)
    replica.schedule.flush()
    replica.log.truncate_to(1, now_ms=NOW_MS)
    replica.features.truncated()
    assert replica.listed() == [(500, 0)]
    replica.publish(70)
    assert replica.listed() == [(70, 1), (500, 0)]
    replica.log.truncate_fully_and_start_at(40, now_ms=NOW_MS)
    replica.features.truncated()
    replica.publish(30)
    assert replica.listed() == [(30, 40)]


def test_runs_go_with_the_part_of_the_log_that_they_speak_for() -> None:
    replica = Replica()
    replica.publish(500)
    replica.schedule.flush()
    replica.publish(100)
    replica.log.advance_log_start(1)
    replica.publish(50)
    assert replica.listed() == [(50, 2), (100, 1)]


def test_nonsense_is_refused_and_says_which_message() -> None:
    replica = Replica()
    batch = memoryview(bytearray(build_batch([(NOW_MS, None, b"v", [("martlet-priority", b"high")])])))
    with pytest.raises(ApiError, match="martlet-priority is 'high': one digit") as refused:
        replica.features.check(batch, read_batch_header(batch), NOW_MS)
    assert refused.value.code is ErrorCode.INVALID_RECORD


def test_the_brokers_own_batches_are_looked_at_and_never_refused() -> None:
    replica = Replica()
    records = [
        (NOW_MS, None, b"v", [("martlet-delay-ms", b"x")]),
        (NOW_MS, None, b"v", [("martlet-delay-ms", b"9")]),
    ]
    batch = memoryview(bytearray(build_batch(records)))
    appended = replica.log.append(batch, read_batch_header(batch), leader_epoch=1, now_ms=NOW_MS)
    replica.features.appended_own(batch, read_batch_header(batch), appended.base_offset, appended.last_offset)
    assert replica.listed() == [(9, 1)]


def test_while_its_files_cannot_be_written_nothing_is_forgotten() -> None:
    replica = Replica()
    replica.schedule._run_entries = 2
    replica.disk.is_failing = True
    replica.publish(500, 400, 300, 200)
    replica.publish(100)
    expected = [(100, 4), (200, 3), (300, 2), (400, 1), (500, 0)]
    assert replica.listed() == expected
    replica.disk.is_failing = False
    replica.publish(0)
    replica.publish(50)
    replica.start_again()
    assert replica.listed() == [(50, 6), *expected]


def test_an_index_that_cannot_be_opened_is_read_again_when_it_can() -> None:
    replica = Replica()
    replica.publish(500, 400)
    replica.disk.is_failing = True
    replica.start_again()
    assert not replica.schedule.is_complete
    replica.publish(100)
    assert not replica.features.mend()
    replica.disk.is_failing = False
    assert replica.listed() == [(100, 2), (400, 1), (500, 0)]


def test_a_replica_that_was_closed_leaves_its_schedule_for_the_next_start() -> None:
    replica = Replica()
    replica.publish(500, 400)
    replica.schedule.flush()
    replica.features.close(is_kept=False)
    replica.features.close()
    replica.start_again()
    assert replica.listed() == [(400, 1), (500, 0)]

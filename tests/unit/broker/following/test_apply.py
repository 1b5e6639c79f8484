"""What one answer does to one followed log: damaged, late and misplaced bytes never reach it."""

from collections.abc import Callable

import pytest
from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.broker.following.apply import is_no_news, take_result
from martlet.broker.following.partition import Followed
from martlet.broker.following.request import RequestedPartition, build_request
from martlet.wire.batch import build_batch, read_batch_header, stamp_batch
from martlet.wire.fetch import EpochEndOffset, FetchPartitionResult
from tests.unit.broker.following.replica_bench import NOW_MS, FollowedCopy, content, open_log, publish

ORDERS = TopicPartition("orders", 0)


def batches(*values: bytes, epoch: int = 3, after: int = 0) -> bytearray:
    """What a leader of `epoch` sends for these messages, one batch each, from offset `after` on."""
    log = open_log(SimDisk(SimRandomness(1)), ORDERS)
    for number in range(after):
        publish(log, b"before %d" % number, epoch=epoch)
    start = len(content(log))
    for value in values:
        publish(log, value, epoch=epoch)
    return bytearray(content(log)[start:])


class Stage:
    """A copy that follows in epoch 3, with three messages of epoch 2."""

    def __init__(self) -> None:
        self.copy = FollowedCopy(ORDERS, SimDisk(SimRandomness(2)))
        for number in range(3):
            publish(self.copy.log, b"%d" % number, epoch=2)
        self.copy.follow(1, 3)
        self.followed = Followed(self.copy)

    def ask(self) -> RequestedPartition:
        self.followed.requested = None
        (asked,) = build_request([self.followed], 1 << 20).partitions.values()
        return asked

    def take(self, result: FetchPartitionResult, asked: RequestedPartition | None = None) -> int:
        return take_result(asked or self.ask(), result, NOW_MS)


def data(records: bytes | bytearray, high_watermark: int = 4, log_start_offset: int = 0) -> FetchPartitionResult:
    return FetchPartitionResult(0, 0, high_watermark, high_watermark, log_start_offset, records=memoryview(records))


def test_records_are_appended_and_the_high_watermark_follows_as_far_as_the_log_reaches() -> None:
    stage = Stage()
    records = batches(b"new", after=3)
    assert stage.take(data(records, high_watermark=9)) == len(records)
    assert (stage.copy.log.end_offset, stage.copy.high_watermark) == (4, 4)
    assert stage.followed.lag_messages == 5


@pytest.mark.parametrize("position", [12, 16, 17, 21, 23, 30, 57, 61, 65])
def test_a_changed_byte_is_refused_and_nothing_is_written(position: int) -> None:
    stage = Stage()
    records = batches(b"sound", b"to be spoilt", after=3)
    second = read_batch_header(records).size
    records[second + position] ^= 0x40
    before = content(stage.copy.log)
    with pytest.raises(ApiError) as caught:
        stage.take(data(records))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert content(stage.copy.log) == before
    assert stage.copy.high_watermark == 0


@pytest.mark.parametrize(
    "spoil",
    [
        lambda records: records[:-1],
        lambda records: records[:30],
        lambda records: records + b"\0" * 20,
        lambda records: records + records,
        lambda records: batches(b"behind the end", after=1),
    ],
    ids=["cut off", "not one batch", "bytes behind", "twice", "from before the end"],
)
def test_bytes_that_are_not_whole_batches_that_follow_are_refused(spoil: Callable[[bytearray], bytearray]) -> None:
    stage = Stage()
    before = content(stage.copy.log)
    with pytest.raises(ApiError) as caught:
        stage.take(data(spoil(batches(b"new", after=3))))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert content(stage.copy.log) == before


@pytest.mark.parametrize("epoch", [-1, 1, 4])
def test_a_batch_of_an_epoch_that_the_leader_cannot_have_sent_is_refused(epoch: int) -> None:
    stage = Stage()
    records = batches(b"new", after=3)
    records[12:16] = epoch.to_bytes(4, "big", signed=True)
    entries = list(stage.copy.log.epochs.entries)
    with pytest.raises(ApiError) as caught:
        stage.take(data(records))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert stage.copy.log.epochs.entries == entries


def test_an_answer_to_an_earlier_epoch_changes_nothing() -> None:
    stage = Stage()
    asked = stage.ask()
    stage.copy.follow(5, 4)
    assert stage.take(data(batches(b"late", after=3)), asked) == 0
    assert stage.take(FetchPartitionResult(0, diverging_epoch=EpochEndOffset(1, 0)), asked) == 0
    assert stage.copy.log.end_offset == 3


def test_an_answer_to_another_end_of_the_log_changes_nothing() -> None:
    stage = Stage()
    asked = stage.ask()
    stage.take(data(batches(b"first", after=3)))
    assert stage.take(FetchPartitionResult(0, diverging_epoch=EpochEndOffset(1, 0)), asked) == 0
    assert stage.copy.log.end_offset == 4


def test_an_answer_for_a_partition_that_leads_by_now_changes_nothing() -> None:
    stage = Stage()
    asked = stage.ask()
    stage.copy.lead()
    assert stage.take(data(batches(b"late", after=3)), asked) == 0
    assert stage.copy.log.end_offset == 3


def test_a_divergence_cuts_the_log() -> None:
    stage = Stage()
    assert stage.take(FetchPartitionResult(0, diverging_epoch=EpochEndOffset(2, 1))) == 0
    assert stage.copy.cuts == [1]


def test_a_cut_that_changes_nothing_pauses_instead_of_going_on_for_ever() -> None:
    stage = Stage()
    with pytest.raises(ApiError):
        stage.take(FetchPartitionResult(0, diverging_epoch=EpochEndOffset(2, 9)))


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID,
     ErrorCode.UNKNOWN_LEADER_EPOCH, ErrorCode.KAFKA_STORAGE_ERROR],
)  # fmt: skip
def test_an_error_of_the_leader_is_raised(code: ErrorCode) -> None:
    stage = Stage()
    with pytest.raises(ApiError) as caught:
        stage.take(FetchPartitionResult(0, code))
    assert caught.value.code is code


def test_an_offset_that_the_leader_has_no_more_starts_the_log_over() -> None:
    stage = Stage()
    assert stage.take(FetchPartitionResult(0, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=70)) == 0
    assert (stage.copy.log.log_start_offset, stage.copy.log.end_offset) == (70, 70)


def test_an_empty_log_that_ends_beyond_its_leaders_starts_over_there() -> None:
    stage = Stage()
    stage.copy.log.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    assert stage.take(FetchPartitionResult(0, ErrorCode.OFFSET_OUT_OF_RANGE, log_start_offset=10)) == 0
    assert stage.copy.log.end_offset == 10


def test_an_answer_without_records_error_or_other_watermark_is_no_news() -> None:
    stage = Stage()
    stage.take(data(b"", high_watermark=3))
    asked = stage.ask()
    assert is_no_news(asked, data(b"", high_watermark=3))
    assert not is_no_news(asked, data(b"", high_watermark=4))
    assert not is_no_news(asked, data(b"", high_watermark=3, log_start_offset=1))
    assert not is_no_news(asked, data(batches(b"new", after=3), high_watermark=3))
    assert not is_no_news(asked, FetchPartitionResult(0, ErrorCode.NOT_LEADER_OR_FOLLOWER, high_watermark=3))
    assert not is_no_news(asked, FetchPartitionResult(0, 0, 3, 3, 0, diverging_epoch=EpochEndOffset(2, 1)))


def test_damage_behind_a_batch_that_would_start_the_log_over_leaves_it_as_it_was() -> None:
    stage = Stage()
    batch = bytearray(build_batch([(NOW_MS, None, b"%d" % number, ()) for number in range(6)]))
    stamp_batch(memoryview(batch), 0, 1, 3)
    spoilt = batches(b"behind", after=7)
    spoilt[-1] ^= 1
    before = content(stage.copy.log)
    with pytest.raises(ApiError) as caught:
        stage.take(data(batch + spoilt, log_start_offset=5))
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert content(stage.copy.log) == before
    assert stage.copy.starts == []
    assert stage.take(data(batch, log_start_offset=5)) == len(batch)
    assert (stage.copy.starts, stage.copy.log.end_offset) == ([1], 7)

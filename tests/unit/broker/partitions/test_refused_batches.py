"""Batches behind a refused one wait for it; none waits for a batch that does not come again."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.partitions.refused_batches import PRODUCERS_MAX, REMEMBERED_MS, RefusedBatches
from martlet.log.producer_state import ProducerStates
from martlet.wire.batch import BatchHeader, build_batch, read_batch_header

REASON = ErrorCode.NOT_ENOUGH_REPLICAS
LED_BY_OTHERS = ErrorCode.NOT_LEADER_OR_FOLLOWER


def batch(sequence: int, *, producer: int = 7, epoch: int = 0) -> BatchHeader:
    return read_batch_header(
        build_batch([(0, None, b"v", ())], producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
    )


def refused(*sequences: int) -> RefusedBatches:
    batches = RefusedBatches()
    for sequence in sequences:
        batches.note(batch(sequence), REASON, 1_000)
    return batches


def is_refused(
    batches: RefusedBatches,
    header: BatchHeader,
    now_ms: int = 1_001,
    *,
    producers: ProducerStates | None = None,
    reason: ErrorCode = REASON,
) -> bool:
    try:
        batches.check(header, producers or ProducerStates(), now_ms)
    except ApiError as error:
        return error.code is reason
    return False


def test_a_batch_behind_a_refused_one_is_refused_for_the_same_reason_until_that_one_comes() -> None:
    batches = refused(3)
    assert is_refused(batches, batch(4))
    assert is_refused(batches, batch(5))
    assert not is_refused(batches, batch(3))
    assert not is_refused(batches, batch(4))
    assert not batches


def test_the_first_refused_batch_counts() -> None:
    assert is_refused(refused(4, 3, 5), batch(4))


@pytest.mark.parametrize("in_log", [batch(3), batch(0, epoch=1)], ids=["the batch", "a later epoch"])
def test_no_batch_waits_for_what_is_in_the_log(in_log: BatchHeader) -> None:
    producers = ProducerStates()
    producers.record(in_log, 10, 0)
    batches = refused(3)
    assert not is_refused(batches, batch(4), producers=producers)
    assert not batches


def test_a_refused_batch_that_is_in_the_log_does_not_hide_the_refusal_of_one_behind_it() -> None:
    producers = written(batch(60), batch(61), batch(62))
    batches = refused(60, 61, 62, 63, 64)
    assert is_refused(batches, batch(64), producers=producers)
    assert not any(is_refused(batches, batch(sequence), producers=producers) for sequence in (60, 61, 62, 63))
    producers.record(batch(63), 3, 0)
    assert is_refused(batches, batch(65), producers=producers)
    assert not is_refused(batches, batch(64), producers=producers)
    producers.record(batch(64), 4, 0)
    assert not is_refused(batches, batch(65), producers=producers)
    assert not batches


def test_a_batch_that_came_again_and_is_not_in_the_log_all_the_same_holds_no_other_up() -> None:
    batches = refused(3, 4)
    assert not is_refused(batches, batch(3))
    assert not is_refused(batches, batch(4))
    assert not batches


def test_those_that_wait_do_not_make_the_wait_longer() -> None:
    batches = refused(3)
    last_ms = 1_000 + REMEMBERED_MS - 1
    assert is_refused(batches, batch(4), last_ms)
    batches.note(batch(4), REASON, last_ms)
    assert not is_refused(batches, batch(4), last_ms + 1)


def cut(before: ProducerStates, after: ProducerStates) -> RefusedBatches:
    batches = RefusedBatches()
    batches.note_cut(dict(before.items()), after, 1_000)
    return batches


def written(*headers: BatchHeader) -> ProducerStates:
    producers = ProducerStates()
    for offset, header in enumerate(headers):
        producers.record(header, offset, 0)
    return producers


def test_a_batch_behind_one_that_was_cut_off_waits_for_it() -> None:
    after = written(batch(0), batch(1))
    batches = cut(written(batch(0), batch(1), batch(2), batch(3)), after)
    assert is_refused(batches, batch(4), producers=after, reason=LED_BY_OTHERS)
    assert is_refused(batches, batch(3), producers=after, reason=LED_BY_OTHERS)
    assert not is_refused(batches, batch(2), producers=after, reason=LED_BY_OTHERS)


@pytest.mark.parametrize("after", [written(), written(batch(8))], ids=["nothing is left", "an older epoch is left"])
def test_of_a_producer_with_nothing_left_in_its_epoch_the_first_batch_is_waited_for(after: ProducerStates) -> None:
    batches = cut(written(batch(8), batch(0, epoch=1), batch(1, epoch=1)), after)
    assert is_refused(batches, batch(2, epoch=1), producers=after, reason=LED_BY_OTHERS)
    assert not is_refused(batches, batch(0, epoch=1), producers=after, reason=LED_BY_OTHERS)


def test_no_batch_waits_for_producers_of_which_nothing_was_truncated() -> None:
    assert not cut(written(batch(0)), written(batch(0)))


def test_what_came_before_the_refused_batch_may_come_again() -> None:
    batches = refused(3)
    assert not is_refused(batches, batch(2))
    assert is_refused(batches, batch(4))


@pytest.mark.parametrize(
    "other", [batch(4, epoch=1), batch(4, producer=8), batch(-1, producer=-1)], ids=["epoch", "producer", "none"]
)
def test_another_producer_or_epoch_is_not_concerned(other: BatchHeader) -> None:
    assert not is_refused(refused(3), other)


@pytest.mark.parametrize("now_ms", [1_000 + REMEMBERED_MS, 0])
def test_no_batch_waits_for_ever_nor_by_a_clock_that_was_put_back(now_ms: int) -> None:
    batches = refused(3)
    assert not is_refused(batches, batch(4), now_ms)
    assert not batches


def test_only_so_many_producers_are_remembered() -> None:
    batches = RefusedBatches()
    for producer in range(PRODUCERS_MAX + 1):
        batches.note(batch(0, producer=producer), REASON, 0)
    assert not is_refused(batches, batch(1, producer=0))
    assert is_refused(batches, batch(1, producer=1))


def test_batches_without_a_producer_are_not_remembered() -> None:
    batches = RefusedBatches()
    batches.note(batch(-1, producer=-1), REASON, 0)
    assert not batches

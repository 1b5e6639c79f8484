"""One walk over a leader's batches: what is damaged, out of order or of a wrong epoch is refused as a whole."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.log.batch_order import COMPACTED, NO_GAPS, KnownGaps
from martlet.log.replicated_batches import ReplicatedBatches, check_replicated
from martlet.wire.batch import stamp_batch
from tests.unit.log.log_builders import batch_of


def batches(*places: tuple[int, int]) -> bytearray:
    """A batch of two records at each offset and leader epoch."""
    found = bytearray()
    for offset, epoch in places:
        batch = batch_of(b"a", b"b")
        stamp_batch(memoryview(batch), 0, offset, epoch)
        found += batch
    return found


def refusal(records: bytes | bytearray, *, last_epoch: int = -1, newest_epoch: int = 9) -> str:
    with pytest.raises(ApiError) as caught:
        check_replicated(memoryview(records), last_epoch=last_epoch, newest_epoch=newest_epoch)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    return caught.value.detail or ""


def test_whole_batches_in_order_come_with_their_headers_and_positions() -> None:
    records = batches((4, 1), (6, 1), (8, 3))
    checked = check_replicated(memoryview(records), last_epoch=1, newest_epoch=3)
    size = len(records) // 3
    assert [(at, header.base_offset) for at, header in checked.batches] == [(0, 4), (size, 6), (2 * size, 8)]
    assert checked.first.base_offset == 4
    assert checked.gaps == []


@pytest.mark.parametrize("position", [8, 9, 16, 17, 21, 23, 57, 61, 70])
@pytest.mark.parametrize("number", [0, 1])
def test_a_changed_byte_anywhere_is_refused(position: int, number: int) -> None:
    records = batches((0, 1), (2, 1))
    records[number * len(records) // 2 + position] ^= 0x40
    assert refusal(records)


@pytest.mark.parametrize(
    ("places", "last_epoch", "newest_epoch"),
    [([(0, 1)], 2, 9), ([(0, 5)], -1, 4), ([(0, -1)], -1, 9), ([(0, 3), (2, 2)], 1, 9), ([(0, 3), (2, 5)], 1, 4)],
    ids=["older than the log", "newer than the leader", "none", "going back", "the second is newer than the leader"],
)
def test_an_epoch_that_the_leader_cannot_have_sent_is_refused(
    places: list[tuple[int, int]], last_epoch: int, newest_epoch: int
) -> None:
    assert "leader epoch" in refusal(batches(*places), last_epoch=last_epoch, newest_epoch=newest_epoch)


@pytest.mark.parametrize("places", [[(4, 1), (5, 1)], [(4, 1), (4, 1)], [(4, 1), (0, 1)], [(-1, 1)], [(-9, 1)]])
def test_offsets_that_go_back_or_are_none_are_refused(places: list[tuple[int, int]]) -> None:
    assert "offset" in refusal(batches(*places))


@pytest.mark.parametrize("size", [0, 1, 60, 61, -1, -50])
def test_bytes_that_are_not_whole_batches_are_refused(size: int) -> None:
    records = batches((0, 1), (2, 1))
    assert refusal(records[: size if size >= 0 else len(records) + size])


def test_batches_behind_the_end_of_the_log_leave_a_gap_there() -> None:
    checked = check_replicated(memoryview(batches((4, 1), (6, 1))))
    assert not checked.gaps_after(4, NO_GAPS)
    assert checked.gaps_after(3, NO_GAPS)
    assert not checked.gaps_after(3, COMPACTED)
    assert not checked.gaps_after(3, KnownGaps(lost=((3, 4),)))


def test_gaps_between_the_batches_are_noted() -> None:
    checked = check_replicated(memoryview(batches((4, 1), (8, 1))))
    assert checked.gaps == [(6, 8)]
    assert checked.gaps_after(4, NO_GAPS)
    assert not checked.gaps_after(4, KnownGaps(lost=((6, 8),)))
    assert not checked.gaps_after(4, COMPACTED)


def test_batches_from_before_the_end_of_the_log_do_not_follow_it() -> None:
    checked: ReplicatedBatches = check_replicated(memoryview(batches((4, 1))))
    with pytest.raises(ApiError) as caught:
        checked.gaps_after(5, COMPACTED)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE

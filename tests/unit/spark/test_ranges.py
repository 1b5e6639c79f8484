"""Offset ranges: splitting loses and repeats nothing."""

import pickle

from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.ids import TopicPartition
from martlet.spark.planning import ranges_between
from martlet.spark.ranges import OffsetRange, split_ranges
from martlet.spark.stream_offsets import StreamOffsets

A0 = TopicPartition("a", 0)
A1 = TopicPartition("a", 1)


def test_ranges_stay_whole_unless_told_otherwise() -> None:
    assert split_ranges([OffsetRange(A0, 5, 9), OffsetRange(A1, 3, 3)]) == [OffsetRange(A0, 5, 9)]


def test_large_ranges_are_split_before_small_ones() -> None:
    pieces = split_ranges([OffsetRange(A0, 0, 90), OffsetRange(A1, 0, 10)], pieces_min=4)
    assert pieces == [OffsetRange(A0, 0, 30), OffsetRange(A0, 30, 60), OffsetRange(A0, 60, 90), OffsetRange(A1, 0, 10)]


def test_no_piece_is_larger_than_asked_for() -> None:
    assert [len(piece) for piece in split_ranges([OffsetRange(A0, 0, 10)], piece_max=4)] == [3, 3, 4]


@settings(deadline=None)
@given(
    starts=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 50)), max_size=5),
    pieces_min=st.none() | st.integers(1, 40),
    piece_max=st.none() | st.integers(1, 20),
)
def test_splitting_loses_and_repeats_nothing(
    starts: list[tuple[int, int]], pieces_min: int | None, piece_max: int | None
) -> None:
    ranges = [OffsetRange(TopicPartition("a", row), start, start + size) for row, (start, size) in enumerate(starts)]
    pieces = split_ranges(ranges, pieces_min=pieces_min, piece_max=piece_max)
    covered = [(piece.partition, offset) for piece in pieces for offset in range(piece.start, piece.end)]
    assert covered == [(whole.partition, offset) for whole in ranges for offset in range(whole.start, whole.end)], (
        "SPK-17"
    )
    assert all(len(piece) for piece in pieces), "SPK-18"
    if pieces_min is not None:
        assert len(pieces) >= min(pieces_min, len(covered))
    if piece_max is not None:
        assert all(len(piece) <= piece_max for piece in pieces)


def test_a_range_survives_the_way_to_a_task() -> None:
    assert pickle.loads(pickle.dumps(OffsetRange(A0, 5, 9))) == OffsetRange(A0, 5, 9)


def test_new_partitions_are_read_from_their_start() -> None:
    start = StreamOffsets({A0: 5})
    assert ranges_between(start, StreamOffsets({A0: 5, A1: 3})) == [OffsetRange(A1, 0, 3)]


def test_a_recreated_topic_is_read_from_its_start() -> None:
    start = StreamOffsets({A0: 5}, {"a": "old"})
    assert ranges_between(start, StreamOffsets({A0: 7}, {"a": "new"})) == [OffsetRange(A0, 0, 7)]
    assert ranges_between(start, StreamOffsets({A0: 7}, {"a": "old"})) == [OffsetRange(A0, 5, 7)]


def test_a_partition_that_goes_back_is_not_read() -> None:
    assert ranges_between(StreamOffsets({A0: 5}), StreamOffsets({A0: 2})) == []

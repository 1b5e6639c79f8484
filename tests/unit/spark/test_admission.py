"""Admission: limits are kept, shares are fair, and a stream always gets on."""

from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.ids import TopicPartition
from martlet.spark.admission import Patience, admit, waiting

PARTITIONS = st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 5))
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 1000), max_size=8)


def at(**offsets: int) -> dict[TopicPartition, int]:
    return {TopicPartition(name[0], int(name[1:])): offset for name, offset in offsets.items()}


def test_what_fits_is_admitted_whole() -> None:
    assert admit(at(a0=5), at(a0=9, a1=3), 7) == at(a0=9, a1=3)


def test_shares_are_in_proportion_to_what_waits() -> None:
    assert admit(at(a0=0, a1=0), at(a0=900, a1=100), 100) == at(a0=90, a1=10)


def test_a_partition_that_is_new_counts_from_its_start() -> None:
    assert waiting(at(a0=10), at(a0=10, a1=5)) == 5
    assert admit(at(a0=10), at(a0=10, a1=5), 2) == at(a0=10, a1=2)


@settings(deadline=None)
@given(begin=POSITIONS, latest=POSITIONS, limit=st.integers(1, 3000))
def test_limits_hold_and_something_is_always_admitted(
    begin: dict[TopicPartition, int], latest: dict[TopicPartition, int], limit: int
) -> None:
    end = admit(begin, latest, limit)
    there = waiting(begin, latest)
    assert end.keys() == latest.keys()
    assert all(end[p] <= latest[p] for p in end), "SPK-1"
    assert all(end[p] >= min(begin.get(p, 0), latest[p]) for p in end), "SPK-1"
    assert waiting(begin, end) == min(limit, there), "SPK-2, SPK-3"


def test_few_messages_are_held_back_until_there_are_enough() -> None:
    patience = Patience(10, 1000)
    assert patience.holds_back(9, 0)
    assert not patience.holds_back(10, 1)


def test_no_partition_is_held_back_longer_than_the_delay() -> None:
    patience = Patience(10, 1000)
    assert patience.holds_back(1, 5000)
    assert patience.holds_back(2, 5999)
    assert not patience.holds_back(2, 6000)
    assert patience.holds_back(2, 6001), "the next ones wait again"


def test_no_messages_are_not_waited_for() -> None:
    patience = Patience(10, 1000)
    assert not patience.holds_back(0, 0)
    assert patience.holds_back(1, 10_000), "the time runs from the first message"

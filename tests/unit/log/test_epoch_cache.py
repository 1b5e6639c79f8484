"""Leader epochs and their starts."""

import pytest

from martlet.base.errors import InvariantViolation
from martlet.log.epoch_cache import UNKNOWN_EPOCH_END, EpochCache


def test_an_epoch_ends_where_the_next_begins() -> None:
    cache = EpochCache([(2, 10), (5, 30), (6, 40)])
    assert cache.end_offset_for(2, log_end_offset=50) == (2, 30)
    assert cache.end_offset_for(5, log_end_offset=50) == (5, 40)
    assert cache.end_offset_for(6, log_end_offset=50) == (6, 50)


def test_an_unknown_epoch_is_answered_with_the_one_before_it() -> None:
    cache = EpochCache([(2, 10), (5, 30)])
    assert cache.end_offset_for(4, log_end_offset=50) == (2, 30)


def test_an_epoch_before_all_ended_where_the_log_begins() -> None:
    assert EpochCache([(2, 10)]).end_offset_for(1, log_end_offset=50) == (1, 10)


def test_a_newer_epoch_than_all_is_unknown() -> None:
    assert EpochCache([(2, 10)]).end_offset_for(3, log_end_offset=50) == UNKNOWN_EPOCH_END
    assert EpochCache().end_offset_for(0, log_end_offset=0) == UNKNOWN_EPOCH_END
    assert EpochCache([(2, 10)]).end_offset_for(-1, log_end_offset=50) == UNKNOWN_EPOCH_END


def test_assigning_twice_changes_nothing() -> None:
    cache = EpochCache()
    assert cache.assign(3, 7)
    assert not cache.assign(3, 7)
    assert not cache.assign(3, 9)
    assert cache.entries == [(3, 7)]


def test_an_epoch_without_records_stays_beside_its_successor() -> None:
    cache = EpochCache([(1, 0)])
    cache.assign(2, 10)
    cache.assign(3, 10)
    assert cache.entries == [(1, 0), (2, 10), (3, 10)]
    assert cache.end_offset_for(2, log_end_offset=20) == (2, 10)


def test_entries_that_contradict_a_new_one_go() -> None:
    cache = EpochCache([(1, 0), (4, 10), (6, 20)])
    cache.assign(5, 8)
    assert cache.entries == [(1, 0), (5, 8)]


def test_the_epoch_at_an_offset_is_the_one_in_force_there() -> None:
    cache = EpochCache([(2, 10), (5, 30), (6, 30)])
    assert [cache.epoch_at(offset) for offset in (9, 10, 29, 30, 99)] == [-1, 2, 2, 6, 6]


def test_cutting_the_end_takes_epochs_that_start_there() -> None:
    cache = EpochCache([(1, 0), (2, 10), (3, 20)])
    cache.truncate_from_end(20)
    assert cache.entries == [(1, 0), (2, 10)]
    cache.truncate_from_end(100)
    assert cache.entries == [(1, 0), (2, 10)]
    cache.truncate_from_end(0)
    assert cache.entries == []
    assert cache.latest_epoch == -1


def test_cutting_the_start_moves_the_epoch_in_force() -> None:
    cache = EpochCache([(1, 0), (2, 10), (3, 20), (4, 20)])
    cache.truncate_from_start(15)
    assert cache.entries == [(2, 15), (3, 20), (4, 20)]
    cache.truncate_from_start(20)
    assert cache.entries == [(3, 20), (4, 20)]
    cache.truncate_from_start(30)
    assert cache.entries == [(4, 30)]


def test_cutting_the_start_before_everything_changes_nothing() -> None:
    cache = EpochCache([(1, 5)])
    cache.truncate_from_start(3)
    cache.truncate_from_start(5)
    assert cache.entries == [(1, 5)]
    assert not cache.is_dirty


def test_changes_make_it_dirty_until_saved() -> None:
    cache = EpochCache([(1, 5)])
    seen = [cache.is_dirty]
    cache.assign(2, 9)
    seen.append(cache.is_dirty)
    cache.saved_changes = cache.changes
    seen.append(cache.is_dirty)
    cache.clear()
    seen.append(cache.is_dirty)
    assert seen == [False, True, False, True]
    assert cache.entries == []


def test_negative_epochs_cannot_be_assigned() -> None:
    with pytest.raises(InvariantViolation):
        EpochCache().assign(-1, 0)

"""The start of a compacted log on disk, and the segments before it, wait for what is behind the new start."""

from hypothesis import given
from hypothesis import strategies as st

from martlet.log.options import LogOptions
from martlet.log.settled_start import SettledStart


class SomeLog:
    """The offsets of a log, set by the test."""

    def __init__(self, start: int, end: int, flushed: int, *, delete: bool = False) -> None:
        self.options = LogOptions(delete=delete, compact=True)
        self.move(start, end, flushed)

    def move(self, start: int, end: int, flushed: int) -> None:
        self.log_start_offset, self.end_offset, self.flushed_offset = start, end, flushed


class Settling:
    """A log that started at 0."""

    def __init__(self, *, delete: bool = False) -> None:
        self.log = SomeLog(0, 0, 0, delete=delete)
        self.settled = SettledStart(self.log, self.log)

    def offset(self, start: int, end: int, flushed: int) -> int:
        self.log.move(start, end, flushed)
        return self.settled.offset()


def test_a_start_settles_when_the_log_is_flushed_to_where_it_ended() -> None:
    settled = Settling()
    assert settled.offset(10, 20, 15) == 0
    assert settled.offset(10, 30, 19) == 0
    assert settled.offset(10, 30, 20) == 10


def test_a_start_of_a_log_that_is_flushed_settles_at_once() -> None:
    assert Settling().offset(10, 20, 20) == 10


def test_a_start_that_moves_all_the_time_settles_step_by_step() -> None:
    settled = Settling()
    assert settled.offset(10, 20, 5) == 0
    assert settled.offset(30, 40, 20) == 10
    assert settled.offset(50, 60, 40) == 30


def test_a_truncated_log_settles_where_it_starts_then() -> None:
    settled = Settling()
    assert settled.offset(10, 20, 5) == 0
    assert settled.offset(8, 8, 5) == 0
    assert settled.offset(8, 9, 8) == 8


def test_where_records_are_deleted_by_age_the_start_settles_at_once() -> None:
    assert Settling(delete=True).offset(10, 20, 0) == 10


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)), max_size=30))
def test_a_settled_start_was_the_start_before_the_log_was_flushed_to_its_end_of_then(
    growths: list[tuple[int, int, int]],
) -> None:
    settled = Settling()
    start = flushed = end = 0
    ended = {0: 0}
    for appended, synced, moved in growths:
        end += appended
        flushed = min(end, flushed + synced)
        start = min(end, start + moved)
        ended.setdefault(start, end)
        found = settled.offset(start, end, flushed)
        assert found <= start
        assert flushed >= ended[found]

"""In which order `./dev bench peers` measures: what a run that is cut short has seen."""

from collections.abc import Iterable, Iterator

from bench.peer_report import Sample
from bench.peer_session import Session, Workload
from bench.peers import schedule


def _nothing(_session: Session) -> Iterator[Sample]:
    yield from ()


_JUDGED = Workload("publish", _nothing, is_judged=True)
_OTHER = Workload("rebalance", _nothing)


def _order(pairs: Iterable[tuple[int, Workload]]) -> list[tuple[int, str]]:
    return [(number, workload.name) for number, workload in pairs]


def test_everything_is_measured_once_before_anything_is_measured_twice() -> None:
    order = _order(schedule([_JUDGED, _OTHER], 5))
    assert order[:2] == [(0, "publish"), (0, "rebalance")]
    assert all(number > 0 for number, _ in order[2:])


def test_workloads_with_targets_have_all_their_rounds_before_the_others_have_their_second() -> None:
    order = _order(schedule([_OTHER, _JUDGED], 5))
    assert order[2:] == [*((number, "publish") for number in range(1, 5)), (1, "rebalance"), (2, "rebalance")]


def test_a_run_without_rounds_measures_nothing() -> None:
    assert _order(schedule([_JUDGED, _OTHER], 0)) == []

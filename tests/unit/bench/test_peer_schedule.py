"""In which order `./dev bench peers` measures: what a run that is cut short has seen."""

from collections.abc import Iterable, Iterator

from bench.peers.report import Sample
from bench.peers.run import schedule
from bench.peers.session import Session, Workload


def _nothing(_session: Session) -> Iterator[Sample]:
    yield from ()


_JUDGED = Workload("publish", _nothing, is_judged=True)
_OTHER = Workload("rebalance", _nothing)


def _order(planned: Iterable[tuple[int, Workload, bool]]) -> list[tuple[int, str, bool]]:
    return [(number, workload.name, is_narrow) for number, workload, is_narrow in planned]


def test_everything_is_measured_once_and_the_targets_again_before_anything_else_is() -> None:
    assert _order(schedule([_OTHER, _JUDGED], 7)) == [
        (0, "rebalance", False),
        (0, "publish", False),
        *((number, "publish", True) for number in range(1, 5)),
        *((number, name, False) for number in (5, 6) for name in ("rebalance", "publish")),
    ]


def test_a_run_of_few_rounds_measures_everything_in_each() -> None:
    for rounds in (1, 2, 3):
        planned = _order(schedule([_JUDGED, _OTHER], rounds))
        assert planned == [(number, name, False) for number in range(rounds) for name in ("publish", "rebalance")]


def test_a_run_without_rounds_measures_nothing() -> None:
    assert _order(schedule([_JUDGED, _OTHER], 0)) == []

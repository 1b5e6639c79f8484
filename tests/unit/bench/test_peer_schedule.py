"""In which order `./dev bench peers` measures: what a run that is cut short has seen, and how it is gone on with."""

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from bench.peers.report import Sample
from bench.peers.run import gone_on, schedule
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


def test_a_run_is_gone_on_with_where_it_was() -> None:
    whole = _order(schedule([_OTHER, _JUDGED], 7))
    assert _order(schedule([_OTHER, _JUDGED], 7, 3)) == [planned for planned in whole if planned[0] >= 3]
    assert _order(schedule([_OTHER, _JUDGED], 7, 7)) == []


def _facts(**machine: str) -> dict[str, Any]:
    return {
        "machine": {"kernel": "6", "commit": "aaa", "date": "2026-01-01"} | machine,
        "versions": {"kafka version": "4.3.1"},
        "missing": {},
        "configurations": {"kafka, cached": "as shipped"},
        "failures": [],
    }


def test_going_on_at_another_commit_names_both() -> None:
    facts = gone_on(_facts(), _facts(commit="bbb"))
    assert facts["machine"] == {"kernel": "6", "commit": "aaa, bbb", "date": "2026-01-01"}
    again = gone_on(facts, _facts(commit="bbb"))
    assert again["machine"]["commit"] == "aaa, bbb"


def test_going_on_with_fewer_systems_keeps_what_is_known_of_the_others() -> None:
    kept = _facts()
    kept["versions"]["nats version"] = "2"
    kept["failures"] = ["publish, cached, nats: TimeoutError"]
    now = _facts() | {"missing": {"nats": "no network"}}
    facts = gone_on(kept, now)
    assert facts["versions"] == {"kafka version": "4.3.1", "nats version": "2"}
    assert facts["missing"] == {}, "it was there when it was measured"
    assert facts["failures"] == ["publish, cached, nats: TimeoutError"]


def test_going_on_with_another_version_or_on_another_machine_is_refused() -> None:
    other = _facts()
    other["versions"]["kafka version"] = "4.4.0"
    with pytest.raises(SystemExit, match=r"kafka version is 4\.4\.0 now and was 4\.3\.1"):
        gone_on(_facts(), other)
    with pytest.raises(SystemExit, match="kernel is 7 now and was 6"):
        gone_on(_facts(), _facts(kernel="7"))

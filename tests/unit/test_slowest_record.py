"""The record of the slowest tests: what every test took, in all its steps, the longest first."""

from pathlib import Path

import pytest

from tests.conftest import SlowestTests, in_good_order


def a_report(name: str, when: str, seconds: float) -> pytest.TestReport:
    return pytest.TestReport(name, ("x", 0, name), {}, "passed", None, when, duration=seconds)  # type: ignore[arg-type]


def test_a_record_adds_up_the_steps_of_each_test_and_lists_the_longest_first(tmp_path: Path) -> None:
    record = SlowestTests(tmp_path / "build" / "slowest.txt")
    for name, when, seconds in (
        ("tests/a.py::test_one@tests/a.py", "setup", 2.0),
        ("tests/a.py::test_one@tests/a.py", "call", 1.0),
        ("tests/a.py::test_two", "call", 7.0),
    ):
        record.pytest_runtest_logreport(a_report(name, when, seconds))
    record.pytest_sessionfinish()
    assert (tmp_path / "build" / "slowest.txt").read_text("utf-8").splitlines() == [
        "2 tests in 0 s, 10 s added up",
        "seconds  share  test",
        "    7.0   70%  tests/a.py::test_two",
        "    3.0  100%  tests/a.py::test_one",
    ]


def test_modules_that_take_long_come_first_and_mixed_and_the_others_stay_as_they_are() -> None:
    modules = [f"tests/{name}.py" for name in ("unit/a", "spark/a", "spark/b", "tidy/a", "cluster/a", "unit/spark/b")]
    assert in_good_order(modules) == [
        f"tests/{name}.py" for name in ("spark/a", "cluster/a", "spark/b", "unit/a", "tidy/a", "unit/spark/b")
    ]

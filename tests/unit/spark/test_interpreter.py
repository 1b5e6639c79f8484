"""The Python of Spark's workers: accepted when it can serve, else refused in a sentence that says what to set."""

import sys
from pathlib import Path

import pytest

from martlet.spark.interpreter import InterpreterRefused, check_interpreter


def program(folder: Path, script: str) -> str:
    path = folder / "python3"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def test_the_python_that_runs_this_is_accepted_and_so_is_one_that_has_martlet(tmp_path: Path) -> None:
    check_interpreter("local[*]", sys.executable)
    check_interpreter("local[2]", program(tmp_path, f'exec {sys.executable} "$@"'))


def test_nothing_is_asked_about_a_master_elsewhere() -> None:
    check_interpreter("spark://host:7077", "/no/such/python")
    check_interpreter("local[*]", None)


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 2.7", "which is Python 2.7; this is 3."),
        ("echo 'No module named martlet' >&2; exit 1", "which does not have what is needed (No module named martlet)"),
        ("exit 1", "which does not have what is needed (it says nothing)"),
    ],
)
def test_one_that_cannot_serve_is_refused_with_the_reason_and_what_to_set(
    tmp_path: Path, script: str, why: str
) -> None:
    with pytest.raises(InterpreterRefused) as caught:
        check_interpreter("local[*]", program(tmp_path, script))
    assert why in str(caught.value)
    assert str(caught.value).endswith(f"set PYSPARK_PYTHON={sys.executable} before the session is made")


def test_one_that_is_not_there_is_refused() -> None:
    with pytest.raises(InterpreterRefused, match=r"/no/such/python, and there is no such program"):
        check_interpreter("local", "/no/such/python")

"""Every file of the project keeps the tidy rules, but for the exceptions on a list that may only shrink."""

from collections import defaultdict
from functools import cache

import pytest

from tests.tidy.rules import PORT_MODULES, PYTHON_RULES, SUPERVISORS, TEXT_RULES, Finding
from tests.tidy.source_tree import ROOT, python_files, text_files

CEILING = 0
"""Number of lines in exceptions.txt. Lower it when a line goes; raising it takes a very good reason."""


@cache
def exceptions() -> dict[str, set[str]]:
    """The places that may break each rule."""
    found: dict[str, set[str]] = defaultdict(set)
    for line in (ROOT / "tests" / "tidy" / "exceptions.txt").read_text("utf-8").splitlines():
        entry, _, reason = line.partition("#")
        if entry.strip():
            rule, place = entry.split()
            assert reason.strip(), f"no reason given: {line}"
            found[rule].add(place)
    return found


@cache
def findings(rule: str) -> tuple[Finding, ...]:
    files = python_files() if rule in PYTHON_RULES else text_files()
    check = PYTHON_RULES.get(rule) or TEXT_RULES[rule]
    return tuple(finding for file in files for finding in check(file))


@pytest.mark.parametrize("rule", [*PYTHON_RULES, *TEXT_RULES])
def test_the_tree_keeps_the_rule(rule: str) -> None:
    broken = [f"{place}: {detail}" for place, detail in findings(rule) if place not in exceptions()[rule]]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize("rule", [*PYTHON_RULES, *TEXT_RULES])
def test_an_exception_no_longer_needed_is_taken_off_the_list(rule: str) -> None:
    needed = {finding.place for finding in findings(rule)}
    assert exceptions()[rule] <= needed


def test_the_list_of_exceptions_only_shrinks() -> None:
    assert sum(map(len, exceptions().values())) == CEILING
    assert set(exceptions()) <= {*PYTHON_RULES, *TEXT_RULES}


def test_every_module_named_in_a_rule_exists() -> None:
    known = {file.path for file in python_files()}
    assert known >= PORT_MODULES | SUPERVISORS

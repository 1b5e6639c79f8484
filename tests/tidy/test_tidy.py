"""Every file of the project keeps the tidy rules, but for the exceptions on a list that may only shrink."""

from collections import defaultdict
from functools import cache

import pytest

from tests.tidy.rules import PORT_MODULES, PYTHON_RULES, SUPERVISORS, TEXT_RULES, Finding
from tests.tidy.source_tree import ROOT, python_files, text_files

CEILING = 4
"""Lines that exceptions.txt may have. Lower it when a line goes; raising it takes a very good reason."""


@cache
def exceptions() -> dict[str, dict[str, str]]:
    """The places that may break each rule, with the reason."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for line in (ROOT / "tests" / "tidy" / "exceptions.txt").read_text("utf-8").splitlines():
        entry, _, reason = line.partition("#")
        if entry.strip():
            rule, place = entry.split()
            assert reason.strip(), f"no reason given: {line}"
            found[rule][place] = reason.strip()
    return found


@cache
def findings(rule: str) -> tuple[Finding, ...]:
    files = python_files() if rule in PYTHON_RULES else text_files()
    check = PYTHON_RULES.get(rule) or TEXT_RULES[rule]
    return tuple(finding for file in files for finding in check(file))


@pytest.mark.parametrize("rule", [*PYTHON_RULES, *TEXT_RULES])
def test_the_tree_keeps_the_rule(rule: str) -> None:
    broken = [f"{place}: {detail}" for place, detail, _ in findings(rule) if place not in exceptions()[rule]]
    assert not broken, "\n" + "\n".join(broken)


@pytest.mark.parametrize("rule", [*PYTHON_RULES, *TEXT_RULES])
def test_an_exception_no_longer_needed_is_taken_off_the_list(rule: str) -> None:
    needed = {finding.place for finding in findings(rule)}
    assert exceptions()[rule].keys() <= needed


@pytest.mark.parametrize("rule", PYTHON_RULES)
def test_what_is_too_large_grows_no_further(rule: str) -> None:
    allowed = {place: int(reason.split()[0]) for place, reason in exceptions()[rule].items() if reason[0].isdigit()}
    grown = [f"{place}: {detail}" for place, detail, size in findings(rule) if size > allowed.get(place, size)]
    assert not grown, "\n" + "\n".join(grown)


def test_the_list_of_exceptions_only_shrinks() -> None:
    assert sum(map(len, exceptions().values())) == CEILING
    assert set(exceptions()) <= {*PYTHON_RULES, *TEXT_RULES}


def test_every_module_named_in_a_rule_exists() -> None:
    known = {file.path for file in python_files()}
    assert known >= PORT_MODULES | SUPERVISORS

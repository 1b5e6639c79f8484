"""Each tidy rule finds what it is for, tried on made-up source."""

import pytest

from tests.tidy.rules import PYTHON_RULES, TEXT_RULES
from tests.tidy.source_tree import SourceFile

HEAD = '"""A made-up module for a test."""\n'


def broken_places(rule: str, text: str, path: str = "src/martlet/broker/app.py") -> list[str]:
    check = PYTHON_RULES.get(rule) or TEXT_RULES[rule]
    return [finding.place for finding in check(SourceFile(path, text))]


def function_of(lines: int) -> str:
    return "class A:\n  def f(self):\n" + "    x = 1\n" * (lines - 1)


def constructor_of(parameters: int) -> str:
    names = ", ".join(f"p{number}" for number in range(parameters - 1))
    return f"class A:\n  def __init__(self, {names}, *, last): ...\n"


def head_of(lines: int, lists: str = "") -> str:
    return '"""A head of prose.\n\n' + "More of it.\n" * (lines - 1) + lists + '"""\n'


def class_of(methods: int) -> str:
    return "class A:\n" + "".join(f"  def f{number}(self): ...\n" for number in range(methods))


@pytest.mark.parametrize(
    ("rule", "kept", "broken"),
    [
        ("file-size", "x = 1\n" * 800, "x = 1\n" * 801),
        ("function-size", function_of(60), function_of(61)),
        ("constructor-parameters", constructor_of(7), constructor_of(8)),
        ("class-methods", class_of(30), class_of(31)),
        ("module-head", HEAD, "x = 1\n"),
        ("module-head", HEAD, '"""."""\n'),
        ("module-head", HEAD, '"""Words without an end of sentence"""\n'),
        ("module-head", HEAD, ""),
        ("module-head", HEAD, '"""Copyright by a person of old."""\n'),
        ("head-size", head_of(12), head_of(13)),
        ("head-size", head_of(12, "\nVersions 0-3. v1:\n- one\n\n    a  b\n"), head_of(12, "\nRules: one.\n")),
        ("head-size", head_of(12, "\nABC-1 one;\nand that.\n\nProved by: x\n"), head_of(12, "\nABC by one.\n")),
        ("vague-name", "class OffsetTable: ...", "class OffsetManager: ..."),
        ("banned-in-package", "invariant(1, 'one')", "assert 1"),
        ("banned-in-package", "click.echo('x')", "print('x')"),
        ("banned-in-package", "self._clock.now_ms()", "time.time()"),
        ("banned-in-package", "datetime.fromtimestamp(1)", "datetime.datetime.now(tz)"),
        ("banned-in-package", "asyncio.get_running_loop()", "asyncio.get_event_loop()"),
        ("banned-in-package", "raise ApiError(1)", "raise NotImplementedError"),
        ("broad-except", "try: g()\nexcept OSError: h()", "try: g()\nexcept Exception: h()"),
        ("broad-except", "try: g()\nexcept BaseException:\n  h()\n  raise", "try: g()\nexcept: h()"),
        ("broad-except", "try: g()\nexcept Exception as e: f.set_exception(e)", "try: g()\nexcept Exception: f(e)"),
        ("broad-except", "try: g()\nexcept Exception as e: raise A(e) from e", "try: g()\nexcept Exception: raise A()"),
        ("dodged-test", "pytest.mark.parametrize('a', [])", "pytest.mark.skipif(True)"),
        ("dodged-test", "import json", "from unittest.mock import MagicMock"),
        ("leftover", "# to do is to be", "# TO" "DO: more"),
        ("dialect", "the caller is answered again", "who" "ever asks is answered"),
        ("dialect", "whosoever", "some" "body asks"),
        ("machine-place", "see docs/work/plan", "see /wo" "rk/plan"),
        ("machine-place", "any index", "https://py" "pi.org/simple"),
    ],
)  # fmt: skip
def test_a_rule_finds_what_breaks_it_and_nothing_else(rule: str, kept: str, broken: str) -> None:
    assert broken_places(rule, kept) == []
    assert len(broken_places(rule, broken)) == 1


def test_a_place_names_the_function_within_its_class() -> None:
    assert broken_places("function-size", function_of(61)) == ["src/martlet/broker/app.py::A.f"]


@pytest.mark.parametrize("text", ["import time", "from os import path", "import a, threading", "import os.path"])
def test_a_pure_package_may_not_import_the_outside_world(text: str) -> None:
    assert broken_places("impure", text, "src/martlet/wire/batch.py") == ["src/martlet/wire/batch.py"]
    assert broken_places("impure", text, "src/martlet/broker/app.py") == []
    assert broken_places("impure", "import timeit_of_ours", "src/martlet/wire/batch.py") == []


def test_the_clock_port_may_read_the_clock() -> None:
    assert broken_places("banned-in-package", "time.time_ns()", "src/martlet/base/clock.py") == []


def test_a_vague_module_or_folder_name_is_found() -> None:
    assert broken_places("vague-name", HEAD, "src/martlet/broker/utils.py")
    assert broken_places("vague-name", HEAD, "src/martlet/common/offsets.py")


def test_a_short_test_name_is_found_but_an_example_is_left_alone() -> None:
    text = "def test_fetch_waits(): ...\ndef test_fetch_waits_for_data(): ...\ndef test_id(): ..."
    found = broken_places("test-name", text, "tests/unit/test_x.py")
    assert found == ["tests/unit/test_x.py::test_fetch_waits", "tests/unit/test_x.py::test_id"]
    assert broken_places("test-name", text, "tests/unit/rules.py") == []


def test_an_empty_init_file_is_fine_in_tests_but_not_in_the_package() -> None:
    assert broken_places("module-head", "", "tests/unit/__init__.py") == []
    assert broken_places("module-head", "", "src/martlet/broker/__init__.py")

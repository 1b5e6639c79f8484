"""What holds for every test: no profiles of the person who runs them, and a record of the slowest tests of a whole run.

`./dev test --slowest` prints that record.
"""

import os
from collections import defaultdict
from pathlib import Path

import pytest

_TESTS_KEPT = 40

os.environ["MARTLET_PROFILES"] = os.devnull


class SlowestTests:
    """Adds up what every test took: its setting up, its call, its taking down. Runs in the main process of pytest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Under `--dist loadscope` a test's name carries the group it was handed out with.
        self._seconds[report.nodeid.partition("@")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self.text(), "utf-8")

    def text(self) -> str:
        """The longest first, with the share of all tests' time that they and those above them take."""
        total = sum(self._seconds.values())
        lines = [f"{len(self._seconds)} tests, {total:.0f} s added up\n", "seconds  share  test\n"]
        so_far = 0.0
        for name, seconds in sorted(self._seconds.items(), key=lambda entry: -entry[1])[:_TESTS_KEPT]:
            so_far += seconds
            lines.append(f"{seconds:7.1f}  {so_far / max(total, 0.001):4.0%}  {name}\n")
        return "".join(lines)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slowest-record", metavar="FILE", help="write the slowest tests of this run into a file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--slowest-record")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SlowestTests(Path(path)), "slowest-tests")

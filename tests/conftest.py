"""What holds for every test: no profiles of the person who runs them, the order of modules, a record of the slowest.

How modules are ordered: those of folders that take long begin first, and evenly mixed, so that what waits (clusters)
runs beside what computes (Spark), and the many short ones are left to fill the end. `./dev test` hands modules to its
processes in this order.

`./dev test --slowest` prints the record.
"""

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import pytest

_TESTS_KEPT = 40
_LONG_FOLDERS = ("spark", "cluster", "sim", "crash", "stores", "broker", "clients", "cli")

os.environ["MARTLET_PROFILES"] = os.devnull


class SlowestTests:
    """Adds up what every test took: its setting up, its call, its taking down. Runs in the main process of pytest."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: dict[str, float] = defaultdict(float)
        self._began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # Under `--dist loadscope` a test's name carries the group it was handed out with.
        self._seconds[report.nodeid.partition("@")[0]] += report.duration

    def pytest_sessionfinish(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(self.text(), "utf-8")

    def text(self) -> str:
        """The longest first, with the share of all tests' time that they and those above them take."""
        total = sum(self._seconds.values())
        on_the_clock = time.monotonic() - self._began
        lines = [
            f"{len(self._seconds)} tests in {on_the_clock:.0f} s, {total:.0f} s added up\n",
            "seconds  share  test\n",
        ]
        so_far = 0.0
        for name, seconds in sorted(self._seconds.items(), key=lambda entry: -entry[1])[:_TESTS_KEPT]:
            so_far += seconds
            lines.append(f"{seconds:7.1f}  {so_far / max(total, 0.001):4.0%}  {name}\n")
        return "".join(lines)


def in_good_order(modules: Sequence[str]) -> list[str]:
    """Modules of folders that take long first, those of each spread evenly among them; the others as they come."""
    place = {}
    for folder in _LONG_FOLDERS:
        own = [module for module in modules if Path(module).parts[-3:-1] == ("tests", folder)]
        place.update({module: index / len(own) for index, module in enumerate(own)})
    return sorted(modules, key=lambda module: place.get(module, 1.0))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ordered = in_good_order([*dict.fromkeys(str(item.path) for item in items)])
    place = {module: index for index, module in enumerate(ordered)}
    items.sort(key=lambda item: place[str(item.path)])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slowest-record", metavar="FILE", help="write the slowest tests of this run into a file")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--slowest-record")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(SlowestTests(Path(path)), "slowest-tests")

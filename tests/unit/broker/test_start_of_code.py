"""What a broker loads at its start: the machines of its coordinators come with the first partition they serve."""

import subprocess
import sys

LAZY = ("martlet.groups.machine", "martlet.groups.records", "martlet.transactions.machine", "re2", "pyarrow", "numpy")


def test_a_broker_starts_without_the_code_of_its_coordinators() -> None:
    program = f"import sys, martlet.broker.app; print([name for name in {LAZY!r} if name in sys.modules])"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert loaded == "[]\n"

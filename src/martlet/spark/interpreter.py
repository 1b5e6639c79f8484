"""Which Python runs Spark's planners and workers, and whether it can: asked before Spark says so in its own way.

Spark starts them with the program that `PYSPARK_PYTHON` names, else with the first `python3` of the path. One without
Martlet fails deep inside of Spark, in hundreds of lines of Java. Here it is one sentence that names the variable.

Rules: no Spark at import, and no answer kept: the variable may change between two sessions.

Proved by: tests/unit/spark/test_interpreter.py, tests/spark/test_interpreter.py
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from martlet.base.errors import MartletError

VARIABLE: Final = "PYSPARK_PYTHON"
_PROBE: Final = "import sys; print(*sys.version_info[:2], sep='.'); sys.stdout.flush(); import martlet.spark.source"
_PROBE_SECONDS: Final = 60.0


class InterpreterRefused(MartletError):
    """Spark's workers would run a Python that cannot serve; the text says which, why, and what to set."""


def check_interpreter(master: str, program: str | None) -> None:
    """Raise InterpreterRefused when workers on this machine would run a Python that has no Martlet, or another version.

    Nothing is asked about a master elsewhere: its machines have programs of their own.
    """
    if program is None or not re.fullmatch(r"local(\[.*\])?", master):
        return
    found = shutil.which(program)
    if found is None:
        raise _refused(program, "and there is no such program")
    if os.path.abspath(found) == os.path.abspath(sys.executable):
        return
    try:
        probe = subprocess.run(  # noqa: S603 (the program that Spark would run)
            [found, "-c", _PROBE],
            env=os.environ | {"PYTHONPATH": _search_path()},
            capture_output=True,
            text=True,
            timeout=_PROBE_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _refused(program, f"which cannot be run ({error})") from None
    version, ours = probe.stdout.strip(), ".".join(map(str, sys.version_info[:2]))
    if version and version != ours:
        raise _refused(program, f"which is Python {version}; this is {ours}, and Spark needs the same on both sides")
    if probe.returncode:
        last = (probe.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise _refused(program, f"which does not have what is needed ({last})")


def _search_path() -> str:
    """What Spark puts into its workers' path by itself, and what was there."""
    import pyspark

    archives = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("*.zip"))
    return os.pathsep.join([*map(str, archives), *filter(None, [os.environ.get("PYTHONPATH")])])


def _refused(program: str, why: str) -> InterpreterRefused:
    return InterpreterRefused(
        f"Spark would run its workers with {program}, {why}; set {VARIABLE}={sys.executable} before the session is made"
    )

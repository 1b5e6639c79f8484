"""`./dev bench install`: how long a new user waits for a first message, and how much lands on the disk.

    python -m bench.install [--work-dir DIR]

Each way to install is taken in a clean clone of the committed tree, with an empty pip cache and, but for building the
wheel, without a compiler on PATH. A way ends when the commands that the banner prints have published and read a
message, in another directory and with a bare environment. Packages come from wherever pip is set up to look.
The exit status is 1 when a way fails or the first one takes longer than 30 s.
"""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.processes import ROOT, end_with_children
from bench.report import machine_facts, markdown_table, say

UP_SECONDS_MAX: Final = 30.0
_WAIT_SECONDS: Final = 300.0
_TOOLS: Final = ("sh", "dirname", "cat", "cksum", "tee", "sed", "tail", "printf", "python3", "env")
_MESSAGE: Final = "my first message"


class InstallFailed(Exception):
    """A way to install did not lead to a message."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one way took."""

    way: str
    install_seconds: float
    message_seconds: float
    megabytes: float
    codec: str

    def row(self) -> list[str]:
        return [
            self.way,
            f"{self.install_seconds:.1f} s",
            f"{self.message_seconds:.1f} s",
            f"{self.megabytes:.0f} MB",
            self.codec,
        ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench install", description="From nothing to a first message.")
    parser.add_argument("--work-dir", type=Path, help="where to install; the directory for temporary files by default")
    asked = parser.parse_args()
    end_with_children()
    with tempfile.TemporaryDirectory(prefix="martlet-install-", dir=asked.work_dir) as name:
        work = Path(name)
        try:
            outcomes = list(_outcomes(work))
        except InstallFailed as error:
            say(f"failed: {error}")
            return 1
        for fact, value in machine_facts(work).items():
            print(f"{fact}: {value}")
        headings = ["way", "installed after", "first message read after", "on disk", "record codec"]
        print("\n".join(markdown_table(headings, [outcome.row() for outcome in outcomes])))
    return int(outcomes[0].message_seconds > UP_SECONDS_MAX)


def _outcomes(work: Path) -> Iterator[Outcome]:
    bare = _environment(work, compiler=False)
    say("./dev up in a clean clone ...")
    clone = _clone(work / "clone")
    yield _first_message("./dev up", work, clone / ".venv", [str(clone / "dev"), "up"], bare, installed_by=None)
    say("building wheel and sdist ...")
    built = _build(work, _clone(work / "built"))
    for kind, pattern in (("wheel", "*.whl"), ("sdist, no compiler", "*.tar.gz")):
        (package,) = built.glob(pattern)
        say(f"pip install {package.name} ...")
        venv = work / kind.partition(",")[0]
        started = time.perf_counter()
        _run([sys.executable, "-m", "venv", str(venv)], bare)
        pip = [str(venv / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
        constraints = ["--constraint", str(ROOT / "constraints.txt")]
        _run([*pip, *constraints, str(package)], _environment(work / kind, compiler=False))
        command = [str(venv / "bin" / "martlet"), "up"]
        yield _first_message(f"pip install of the {kind}", work, venv, command, bare, installed_by=started)
    yield from _as_documented(work)


def _as_documented(work: Path) -> Iterator[Outcome]:
    """`pip install .` and `pipx install .` in a clean clone, without a compiler."""
    for tool in ("pip", "pipx"):
        say(f"{tool} install . ...")
        source = _clone(work / f"clone for {tool}")
        environment = _environment(work / tool, compiler=False)
        venv = work / f"{tool} environment"
        _run([sys.executable, "-m", "venv", str(venv)], environment)
        program = venv / "bin" / tool
        command = [str(venv / "bin" / "martlet"), "up"]
        if tool == "pipx":
            _run([str(venv / "bin" / "pip"), "install", "--quiet", "pipx"], environment)
            environment |= {"PIPX_HOME": str(work / "pipx home"), "PIPX_BIN_DIR": str(work / "pipx bin")}
            venv, command = work / "pipx home" / "venvs" / "martlet", [str(work / "pipx bin" / "martlet"), "up"]
        started = time.perf_counter()
        _run([str(program), "install", "--quiet", "."], environment, directory=str(source))
        yield _first_message(f"{tool} install .", work, venv, command, environment, installed_by=started)


def _environment(work: Path, *, compiler: bool) -> dict[str, str]:
    """A user's environment with a pip cache of its own; without a compiler only the tools a shell script needs."""
    cache = work / "pip-cache"
    path = os.environ["PATH"]
    if not compiler:
        tools = work / "tools"
        tools.mkdir(parents=True, exist_ok=True)
        for tool in _TOOLS:
            found = sys.executable if tool == "python3" else shutil.which(tool)
            if found is not None and not (tools / tool).exists():
                (tools / tool).symlink_to(os.path.realpath(found))
        path = str(tools)
    kept = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "SSL_", "HOME", "LANG"))}
    return kept | {"PATH": path, "PIP_CACHE_DIR": str(cache)}


def _clone(target: Path) -> Path:
    _run(["git", "clone", "--quiet", str(ROOT), str(target)], dict(os.environ))
    return target


def _build(work: Path, source: Path) -> Path:
    """The directory with a wheel and an sdist of this source."""
    environment = _environment(work / "build", compiler=True)
    venv = work / "builder"
    _run([sys.executable, "-m", "venv", str(venv)], environment)
    _run([str(venv / "bin" / "pip"), "install", "--quiet", "build"], environment)
    _run([str(venv / "bin" / "python"), "-m", "build", str(source)], environment)
    return source / "dist"


def _first_message(
    way: str, work: Path, venv: Path, command: list[str], environment: dict[str, str], *, installed_by: float | None
) -> Outcome:
    """Start the broker, and do what its banner says."""
    installed = time.perf_counter()
    started = installed if installed_by is None else installed_by
    data = work / f"data of {venv.parent.name} {venv.name}"
    flags = ["--data", str(data), "--kafka", "127.0.0.1:0", "--operations", "127.0.0.1:0"]
    with _serving([*command, *flags], environment) as banner:
        if installed_by is None:
            installed = time.perf_counter()
        commands = banner.split("In another terminal:\n")[1].splitlines()[:-1]
        printed = [_run(["/bin/sh", "-c", line], {"PATH": "/usr/bin:/bin"}, directory="/") for line in commands]
    if printed[-1].strip() != _MESSAGE:
        raise InstallFailed(f"{way}: the banner's commands read {printed[-1]!r} instead of {_MESSAGE!r}")
    took = time.perf_counter() - started
    codec = _run(
        [str(venv / "bin" / "python"), "-c", "from martlet.wire.records.index import codec_name; print(codec_name())"],
        environment,
        directory="/",
    ).strip()
    return Outcome(way, installed - started, took, _megabytes(venv), codec)


@contextmanager
def _serving(command: Sequence[str], environment: dict[str, str]) -> Iterator[str]:
    """A running `martlet up`, and what it has printed; its log is shown if it ends."""
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert process.stdout is not None
            printed = ""
            while not re.search(r"^Ctrl-C stops it\.$", printed, re.MULTILINE):
                line = process.stdout.readline()
                if not line:
                    log.seek(0)
                    raise InstallFailed(f"{' '.join(command)} ended: {log.read()[-2000:]}")
                printed += line
            yield printed
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=_WAIT_SECONDS)


def _run(command: Sequence[str], environment: dict[str, str], *, directory: str | None = None) -> str:
    done = subprocess.run(
        command, env=environment, cwd=directory, capture_output=True, text=True, timeout=_WAIT_SECONDS, check=False
    )
    if done.returncode:
        raise InstallFailed(f"{' '.join(command)} ended with {done.returncode}: {(done.stderr or done.stdout)[-2000:]}")
    return done.stdout


def _megabytes(directory: Path) -> float:
    return sum(file.lstat().st_size for file in directory.rglob("*") if not file.is_dir()) / 1e6


if __name__ == "__main__":
    sys.exit(main())

"""Where a broker's time goes under a workload: py-spy's samples, and the functions they fell into most often."""

import contextlib
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from bench.peers.systems.cache import Missing
from bench.processes import ProcessFailed

_SHOWN: Final = 25
_RATE: Final = 250
_SECONDS_MAX: Final = 3600
_WAITS: Final = ("PyThread_acquire_lock_timed", "pthread_cond_timedwait", "epoll_wait", "epoll_pwait")


@contextlib.contextmanager
def profiled(pid: int, path: Path) -> Iterator[None]:
    """Watch a process while the block runs; writes the stacks to `path` and a summary beside it as `.txt`."""
    program = shutil.which("py-spy", path=str(Path(sys.executable).parent)) or shutil.which("py-spy")
    if program is None:
        raise Missing("py-spy is not installed (pip install 'martlet[bench]')")
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [program, "record", "--pid", str(pid), "--format", "raw", "--native", "--rate", str(_RATE)]
    command += ["--duration", str(_SECONDS_MAX), "--output", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    complaint = b""
    try:
        yield
    finally:
        process.send_signal(signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            _, complaint = process.communicate(timeout=30)
        process.kill()
        process.communicate()
    if not path.exists():
        raise ProcessFailed(f"py-spy wrote nothing: {complaint.decode('utf-8', 'replace').strip()[-300:] or 'no word'}")
    path.with_suffix(".txt").write_text(summary(path.read_text("utf-8", "replace").splitlines()), "utf-8")


def summary(stacks: Iterable[str]) -> str:
    """The share of each function in the time not spent waiting, by itself and with what it called, largest first."""
    own: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    waiting = 0
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        if not count.isdigit() or not stack:
            continue
        frames = stack.split(";")
        if any(frame.startswith(_WAITS) for frame in frames):
            waiting += int(count)
            continue
        own[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    total = own.total()
    lines = [f"{total} samples at work, {waiting} of all threads waiting", "   own  whole"]
    lines += [f"{own[name] / total:6.1%} {whole[name] / total:6.1%}  {name}" for name, _ in own.most_common(_SHOWN)]
    return "\n".join(lines) + "\n"

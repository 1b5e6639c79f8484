"""A file system so small that it can be filled, where this process may mount one."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MEBIBYTE = 1 << 20
CAP_SYS_ADMIN = 21


def may_mount() -> bool:
    """Whether this process may mount a file system of its own."""
    status = Path("/proc/self/status")
    if shutil.which("mount") is None or not status.exists():
        return False
    effective = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> CAP_SYS_ADMIN & 1)


@contextmanager
def mounted(place: Path, *, mebibytes: int = 24) -> Iterator[Path]:
    """A file system of that size at `place`, a new directory."""
    place.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mebibytes}m", "tmpfs", str(place)], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def fill(path: Path, *, leave_bytes: int = 0) -> None:
    """Take what is free but for a rest."""
    with path.open("wb") as filler:
        free = shutil.disk_usage(path.parent).free - leave_bytes
        if free > 0:
            os.posix_fallocate(filler.fileno(), 0, free)

"""Sends the packages that executors need along with a pipeline: machines of a cluster need only Python and Spark.

How it works: the packages are those that Martlet and its Spark part depend on, found from the installed metadata, and
Martlet itself as it is here, compiled codec included. They go into one archive, which Spark unpacks in the directory of
every executor, and from there into the search path of its Python. The archive is kept, and built again when a version
or a file of Martlet's has changed.

Rules: the machines' Python must be of the same minor version and platform as ours. PySpark is not sent: it comes with
Spark. The driver's planner processes run the same Python as the executors, so our own packages are put into its path.

Proved by: tests/spark/test_pipeline_cluster.py.
"""

import hashlib
import importlib.metadata
import os
import re
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import martlet

FOLDER: Final = "martlet_packages"
"""What the archive is called where executors run."""

_ROOTS: Final = ("martlet", "pyarrow", "numpy", "pandas")
_NOT_SENT: Final = frozenset({"pyspark", "py4j"})
_NAME: Final = re.compile(r"^[A-Za-z0-9._-]+")


def ships_to(master: str) -> bool:
    """Whether executors of this master run elsewhere than the driver."""
    return not re.fullmatch(r"local(\[.*\])?", master)


def shipping_settings(archive: Path) -> dict[str, str]:
    """Spark's settings for executors that get the archive."""
    return {
        "spark.archives": f"{archive}#{FOLDER}",
        "spark.executorEnv.PYTHONPATH": FOLDER,
    }


def shipping_environment() -> dict[str, str]:
    """Variables of the driver's process: which Python runs everywhere, and where it finds our packages here."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    places = [
        str(Path(martlet.__file__).parents[1]),
        sysconfig.get_paths()["purelib"],
        sysconfig.get_paths()["platlib"],
    ]
    before = os.environ.get("PYTHONPATH", "")
    return {
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", version),
        "PYTHONPATH": os.pathsep.join(dict.fromkeys([*places, *before.split(os.pathsep)])).strip(os.pathsep),
    }


def packages_archive(folder: Path) -> Path:
    """The archive for this installation, in the folder; made if it is not there yet."""
    distributions = list(_needed())
    archive = folder / f"packages-{_fingerprint(distributions)}.tar.gz"
    if archive.exists():
        return archive
    folder.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(".draft")
    with tarfile.open(draft, "w:gz", compresslevel=1) as content:
        for distribution in distributions:
            _add(content, distribution)
        for path in _own_files():
            content.add(path, str(path.relative_to(Path(martlet.__file__).parents[1])))
    draft.replace(archive)
    return archive


def _needed() -> Iterator[importlib.metadata.Distribution]:
    """The roots and all they need, without extras."""
    waiting, seen = [*_ROOTS], set(_NOT_SENT)
    while waiting:
        name = waiting.pop()
        normal = re.sub(r"[-_.]+", "-", name).lower()
        if normal in seen:
            continue
        seen.add(normal)
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            # For another platform or an older Python.
            continue
        yield distribution
        for requirement in distribution.requires or []:
            named = _NAME.match(requirement)
            if named and "extra ==" not in requirement:
                waiting.append(named.group())


def _add(content: tarfile.TarFile, distribution: importlib.metadata.Distribution) -> None:
    for file in distribution.files or []:
        path = Path(str(distribution.locate_file(file)))
        is_package = not file.parts[0].startswith("..") and file.parts[0] not in ("martlet", "pyspark_martlet")
        if is_package and "__pycache__" not in file.parts and path.is_file():
            content.add(path, str(file))


def _own_files() -> Iterator[Path]:
    """Martlet as it is imported here, which need not be where its metadata says."""
    package = Path(martlet.__file__).parent
    for root in (package, package.parent / "pyspark_martlet"):
        yield from sorted(path for path in root.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def _fingerprint(distributions: list[importlib.metadata.Distribution]) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for distribution in distributions:
        digest.update(f"{distribution.name} {distribution.version};".encode())
    for path in _own_files():
        digest.update(f"{path} {path.stat().st_mtime_ns};".encode())
    return digest.hexdigest()[:16]

"""Where other queues are kept for a comparison: a cache directory outside the tree, filled once.

Nothing of a peer becomes part of Martlet: its server and its client get environments of their own here. To remove all,
delete the directory: `martlet-bench` in the user's cache directory, or what MARTLET_BENCH_CACHE says.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.report import say

_INSTALL_SECONDS_MAX: Final = 600.0
_CLIENTS: Final = ("nats-py", "pika", "redis[hiredis]")
_POM: Final = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>bench</groupId><artifactId>jars</artifactId><version>1</version>
  <dependencies>
{dependencies}
  </dependencies>
</project>
"""
_DEPENDENCY: Final = (
    "    <dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
)
_ALONE: Final = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


class Missing(Exception):
    """A peer that cannot be had here; the text says why."""


def cache_directory() -> Path:
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "martlet-bench"
    path = Path(os.environ.get("MARTLET_BENCH_CACHE") or default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def run_tool(command: Sequence[str], *, cwd: Path | None = None, environment: Mapping[str, str] | None = None) -> str:
    """What the command prints; raises Missing with the end of its output when it fails."""
    try:
        done = subprocess.run(
            command,
            cwd=cwd,
            env=os.environ | dict(environment or {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_INSTALL_SECONDS_MAX,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from None
    if done.returncode:
        raise Missing(f"{' '.join(command[:4])} … ended with {done.returncode}: {done.stdout[-500:].strip()}")
    return done.stdout


def python_with(name: str, packages: Sequence[str]) -> Path:
    """The interpreter of a virtual environment with these packages; made when it is not there."""
    place = cache_directory() / name
    stamp = place / "installed"
    if not stamp.exists() or stamp.read_text("utf-8") != " ".join(packages):
        say(f"installing {', '.join(packages)} into the cache ...")
        run_tool([sys.executable, "-m", "venv", str(place)])
        run_tool([str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", *packages])
        stamp.write_text(" ".join(packages), "utf-8")
    return place / "bin" / "python"


def maven_jars(
    name: str, artifacts: Sequence[tuple[str, str, str]], *, alone: bool = False, may_fetch: bool = True
) -> Path:
    """A directory with the jars of these (group, artifact, version), fetched by Maven when they are not there.

    With what they depend on, unless `alone`. Raises Missing.
    """
    if not shutil.which("java"):
        raise Missing(f"{name} needs Java 17 or newer")
    place = cache_directory() / name
    content = _POM.format(
        dependencies="\n".join(_DEPENDENCY.format(*artifact, _ALONE if alone else "") for artifact in artifacts)
    )
    complete = place / "complete"
    if not complete.exists() or complete.read_text("utf-8") != content:
        if not may_fetch:
            raise Missing(f"the jars of {name} are not in the cache")
        if not shutil.which("mvn"):
            raise Missing(f"the jars of {name} are fetched with Maven, which is not installed (Debian: maven)")
        say(f"fetching the jars of {name} ...")
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
        (place / "pom.xml").write_text(content, "utf-8")
        run_tool(["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=libs"], cwd=place)
        complete.write_text(content, "utf-8")
    return place / "libs"


def clients_python() -> str:
    """The interpreter that has the clients of all peers that do not speak Kafka's protocol."""
    return str(python_with("clients", _CLIENTS))


def debian_program(program: str, package: str) -> str:
    """The path of a program; its package is installed when it is missing and we may. No service is started."""
    path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None and shutil.which("apt-get") and os.geteuid() == 0:
        say(f"installing {package} ...")
        # At run level 1 Debian's packages do not start their services.
        environment = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", package]
        try:
            run_tool(command, environment=environment)
        except Missing:
            run_tool(["apt-get", "update", "-qq"])
            run_tool(command, environment=environment)
        path = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if path is None:
        raise Missing(f"{program} is not installed (Debian: {package})")
    return path

"""What can be seen to be wrong before Spark is started: Java, the interpreter, options, topics.

Rules: a check here changes nothing and starts nothing. What it finds ends with the exit code that the same mistake has
in every other verb.

Proved by: tests/unit/cli/test_pipeline_checks.py
"""

import contextlib
import difflib
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from martlet.base.errors import MartletError
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import Target
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

_MASTERS: Final = "local[*], local[N], spark://HOST:PORT, yarn or k8s://URL"
_MASTER: Final = re.compile(r"local(-cluster)?(\[.*\])?|spark://.+|yarn|k8s://.+")


def check_surroundings(master: str) -> None:
    """The master is one, and the Python of the workers has what they need."""
    from martlet.spark.interpreter import VARIABLE, check_interpreter

    if not _MASTER.fullmatch(master):
        raise CommandFailed(ExitCode.USAGE, f"--master: {master!r} is no master of Spark's", f"write {_MASTERS}")
    with as_wrong_usage():
        check_interpreter(master, os.environ.get(VARIABLE))


def check_java() -> None:
    """Spark can start: asked last, since it is no mistake in what was typed."""
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise CommandFailed(ExitCode.USAGE, "Spark needs a Java runtime, and there is none", "install Java 17 or newer")


def check_topics(target: Target, topics: Sequence[str]) -> None:
    """The brokers answer, and have every one of these topics."""
    if not topics:
        return

    async def ask(cluster: "Cluster") -> list[str]:
        return [*await cluster.retry(cluster.refresh_all)]

    known = run_with_cluster(target, ask)
    missing = [topic for topic in topics if topic not in known]
    if missing:
        close = difflib.get_close_matches(missing[0], known, n=1)
        guess = f"did you mean {close[0]!r}? " if close else ""
        raise CommandFailed(
            ExitCode.NOT_FOUND,
            f"there is no topic {missing[0]!r}",
            f"{guess}`martlet topic list` shows the topics, `martlet topic create` makes one",
        )


@contextlib.contextmanager
def as_wrong_usage() -> Iterator[None]:
    """What is wrong with an option or a file of flows is a wrong command line, not a run that failed."""
    try:
        yield
    except CommandFailed:
        raise
    except MartletError as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from None

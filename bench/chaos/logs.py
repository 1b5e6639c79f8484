"""What the brokers' logs say that no user should have to read: tracebacks, each once with how often it came.

Proved by: tests/cluster/test_chaos_parts.py
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

_HEAD = "Traceback (most recent call last):"


def tracebacks(logs: Iterable[Path]) -> list[str]:
    """One sentence for each kind of exception that reached a log."""
    counted: Counter[str] = Counter()
    for log in logs:
        counted.update(_exceptions(log.read_text("utf-8", "replace").splitlines()))
    return [f"{count} × in the brokers' logs: {text}" for text, count in counted.most_common()]


def _exceptions(lines: Sequence[str]) -> Iterator[str]:
    """The line that names the exception, and the place it came from."""
    for number, line in enumerate(lines):
        if line.strip() != _HEAD:
            continue
        place = ""
        for later in lines[number + 1 :]:
            if later.startswith((" ", "\t")):
                if later.lstrip().startswith("File "):
                    place = later.strip()
            elif later.strip():
                yield f"{later.strip()[:200]} ({place})"
                break

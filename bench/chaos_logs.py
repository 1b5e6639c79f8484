"""What the brokers' logs say that no user should have to read: tracebacks, each once with how often it came."""

from collections import Counter
from collections.abc import Iterator, Sequence

from tests.cluster.running_cluster import RunningCluster

_HEAD = "Traceback (most recent call last):"


def tracebacks(cluster: RunningCluster) -> list[str]:
    """One sentence for each kind of exception that reached a log."""
    counted: Counter[str] = Counter()
    for broker in cluster.brokers.values():
        lines = broker.output.read_text("utf-8", "replace").splitlines()
        counted.update(_exceptions(lines))
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

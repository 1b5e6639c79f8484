"""Reading a broker's counters from its operations port, as a monitoring system would."""

import time
import urllib.request
from collections.abc import Callable

UNEXPECTED = 'error="unknown_server_error"'
PARKED_FETCHES = "martlet_parked_fetches"
CONNECTIONS = "martlet_connections"


def scrape(operations_url: str) -> dict[str, float]:
    """Every sample by its name and labels, as printed."""
    with urllib.request.urlopen(f"{operations_url}/metrics", timeout=10) as response:
        lines = response.read().decode().split("\n")
    samples = (line.rpartition(" ") for line in lines if line and not line.startswith("#"))
    return {name: float(value) for name, _, value in samples}


def unexpected_errors(operations_url: str) -> int:
    """How many requests failed inside the broker for a reason it did not foresee."""
    return int(sum(count for series, count in scrape(operations_url).items() if UNEXPECTED in series))


def wait_until(condition: Callable[[], bool], what: str, within_seconds: float = 10.0) -> None:
    """Check again and again until it holds; fails, naming what was awaited, when it does not in time."""
    deadline = time.monotonic() + within_seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {within_seconds} s: {what}"
        time.sleep(0.02)

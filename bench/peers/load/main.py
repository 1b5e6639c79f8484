"""What every load generator of the comparison shares: the specification comes in, one JSON object goes out.

    python -m bench.peers.load.confluent… < SPECIFICATION > RESULT

Rules: nothing but the standard library is imported here, because some generators run in an environment that has nothing
but their client. Times are read from the monotonic clock, which all processes of a machine share.

Roles, the same for every system: `hello` (connect), `create` (a queue), `publish` and `consume` (as fast as it goes),
`latency` (at a rate), `first` (print a line, wait for one, then publish one message as soon as anybody takes it) and
`discard` (publish to where the server throws messages away: the client's own limit). Publishing ends at `count`
messages or after `seconds_max`, whichever comes first, and says how many there were.
"""

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

SECONDS_MAX: Final = 300.0
STAMP_BYTES: Final = 8

Role = Callable[[dict[str, Any]], dict[str, Any]]


def serve(roles: Mapping[str, Role]) -> None:
    """Do the one thing asked for; what goes wrong is reported as `failed`."""
    specification = json.loads(sys.stdin.readline())
    try:
        result = roles[specification["role"]](specification)
    except Exception as error:  # noqa: BLE001 - the parent decides what a failure means
        result = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)


def value_of(size: int) -> bytes:
    """A value of that size that does not compress to nothing: JSON-like text with changing numbers."""
    text = b"".join(b'{"id":%d,"account":"%08x","amount":%d},' % (n, n * 2654435761 % 2**32, n * 7) for n in range(400))
    return (text * (size // len(text) + 1))[:size]


def stamped(size: int) -> bytes:
    """A value that says when it was made."""
    return time.monotonic_ns().to_bytes(STAMP_BYTES, "big") + bytes(max(0, size - STAMP_BYTES))


def microseconds_since(value: bytes) -> float:
    return round((time.monotonic_ns() - int.from_bytes(value[:STAMP_BYTES], "big")) / 1000, 1)


class Stopwatch:
    """Wall time and this process's processor time, from its making."""

    def __init__(self) -> None:
        self._started, self._cpu = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    def result(self, messages: int) -> dict[str, Any]:
        return {
            "messages": messages,
            "seconds": self.seconds,
            "client_cpu_seconds": time.process_time() - self._cpu,
        }


def first_role(publish_one: Callable[[dict[str, Any]], None]) -> Role:
    """The role `first` of a system whose `publish_one` connects, makes a queue and has one message accepted."""

    def first(specification: dict[str, Any]) -> dict[str, Any]:
        print(json.dumps({"ready": True}), flush=True)
        sys.stdin.readline()
        deadline = time.monotonic() + SECONDS_MAX
        while True:
            try:
                publish_one(specification)
                return {"at": time.monotonic()}
            except Exception:  # any failure means "not yet"
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    return first

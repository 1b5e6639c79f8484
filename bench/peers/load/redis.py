"""The load generator for Redis streams, with redis-py. Runs in the environment of the peers' clients.

Commands are packed once and sent many at a time, as a pipeline is; the answers are read one by one.
"""

import importlib
import threading
import time
from typing import Any, Final

from bench.peers.load.main import (
    SECONDS_MAX,
    Stopwatch,
    first_role,
    microseconds_since,
    serve,
    stamped,
    value_of,
)

_PIPELINE: Final = 500
_READ: Final = 5_000


def _client(specification: dict[str, Any]) -> Any:
    host, _, port = specification["servers"].partition(":")
    return importlib.import_module("redis").Redis(host=host, port=int(port), socket_timeout=SECONDS_MAX)


def hello(specification: dict[str, Any]) -> dict[str, Any]:
    return {"answered": bool(_client(specification).ping())}


def create(specification: dict[str, Any]) -> dict[str, Any]:
    """A stream exists once something was added to it."""
    return hello(specification)


def publish(specification: dict[str, Any]) -> dict[str, Any]:
    return _pipelined(specification, ("XADD", specification["queue"], "*", "v"))


def discard(specification: dict[str, Any]) -> dict[str, Any]:
    """To a channel without listeners: the server drops it."""
    return _pipelined(specification, ("PUBLISH", "bench.unheard"))


def _pipelined(specification: dict[str, Any], command: tuple[str, ...]) -> dict[str, Any]:
    connection = _client(specification).connection_pool.get_connection()
    value = value_of(specification["value_bytes"])
    packed = b"".join(connection.pack_commands([(*command, value)] * _PIPELINE))
    rounds = max(2, specification["count"] // _PIPELINE)
    seconds_max = specification.get("seconds_max", SECONDS_MAX)
    sent = answered = 0
    watch = Stopwatch()
    # The next pipeline is on its way while the answers to the one before are read.
    while answered < sent or not sent:
        while sent < rounds and sent < answered + 2 and watch.seconds < seconds_max:
            connection.send_packed_command([packed])
            sent += 1
        for _ in range(_PIPELINE):
            connection.read_response()
        answered += 1
    return watch.result(sent * _PIPELINE)


def consume(specification: dict[str, Any]) -> dict[str, Any]:
    client, queue = _client(specification), specification["queue"]
    seen, last = 0, "0"
    deadline = time.monotonic() + SECONDS_MAX
    watch = Stopwatch()
    while seen < specification["count"] // _PIPELINE * _PIPELINE:
        answer = client.xread({queue: last}, count=_READ, block=1000)
        for _, entries in answer.items() if isinstance(answer, dict) else answer or ():
            # The third edition of Redis's protocol nests the entries once more.
            found = entries[0] if entries and isinstance(entries[0], list) else entries
            seen += len(found)
            last = found[-1][0]
        if time.monotonic() > deadline:
            raise TimeoutError(f"{seen} messages after {SECONDS_MAX:.0f} s")
    return watch.result(seen)


def latency(specification: dict[str, Any]) -> dict[str, Any]:
    """One publish at a time at a rate: a Redis connection answers in turn."""
    queue, warmup = specification["queue"], specification["warmup"]
    total = specification["samples"] + warmup
    publisher, reader = _client(specification), _client(specification)
    acknowledged: list[float] = []
    deliveries: list[float] = []

    def read() -> None:
        last: Any = "$"
        while len(deliveries) < total:
            answer = reader.xread({queue: last}, block=5000)
            for _, entries in answer.items() if isinstance(answer, dict) else answer or ():
                for entry in entries[0] if entries and isinstance(entries[0], list) else entries:
                    last = entry[0]
                    deliveries.append(microseconds_since(entry[1][b"v"]))

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    time.sleep(0.5)
    due = time.monotonic()
    for _ in range(total):
        due += 1 / specification["rate"]
        time.sleep(max(0.0, due - time.monotonic()))
        value = stamped(specification["value_bytes"])
        publisher.xadd(queue, {"v": value})
        acknowledged.append(microseconds_since(value))
    thread.join(SECONDS_MAX)
    return {"publish_us": acknowledged[warmup:], "delivery_us": deliveries[warmup:]}


def _publish_one(specification: dict[str, Any]) -> None:
    _client(specification).xadd(specification["queue"], {"v": b"first"})


if __name__ == "__main__":
    serve(
        {
            "hello": hello,
            "create": create,
            "publish": publish,
            "discard": discard,
            "consume": consume,
            "latency": latency,
            "first": first_role(_publish_one),
        }
    )

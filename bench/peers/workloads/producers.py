"""The comparison's many clients: one to a thousand producers with small batches, and how soon a group settles."""

from collections.abc import Iterator
from typing import Final

from bench.batches import build_values_batch
from bench.peers.load.main import value_of
from bench.peers.report import Sample
from bench.peers.session import Session
from bench.processes import run_helper
from bench.wire_client import produce_error_at, produce_frame

_BATCH_MESSAGES: Final = 10
_PARTITIONS: Final = 12


def producers(session: Session) -> Iterator[Sample]:
    """Ten messages of 100 B in a request, one request under way per producer, spread over twelve partitions."""
    batch = build_values_batch([value_of(100)] * _BATCH_MESSAGES)
    for count in (1, 10, 100, 1_000):
        if session.context.quick and count > 10:
            break
        queue = session.queue(partitions=_PARTITIONS)
        load = {
            "role": "producers",
            "port": session.running.port,
            "producers": count,
            "frames": [produce_frame(queue, index, batch).hex() for index in range(_PARTITIONS)],
            "error_at": produce_error_at(queue),
            "batch_messages": _BATCH_MESSAGES,
            "warmup_seconds": 0.3 if session.context.quick else 1.0,
            "seconds": 0.5 if session.context.quick else 5.0,
        }

        def run(load: dict[str, object] = load) -> dict[str, object]:
            return run_helper("bench.peers.load.small_requests", load)

        yield from session.timed(f"producers: {count:,}, {session.durability}", run, producers=float(count))


def rebalance(session: Session) -> Iterator[Sample]:
    """Seconds until all of a group's partitions are spread evenly: at its start, with one more, with one fewer."""
    members, partitions = session.context.sized(10, 3), session.context.sized(100, 6)
    for protocol in ("classic", "consumer"):
        queue = session.queue(partitions=partitions)
        load = {"role": "rebalance", "queue": queue, "group": f"group-{protocol}", "protocol": protocol}
        result = session.running.load(load | {"members": members, "partitions": partitions})
        for event, seconds in result.items():
            case = f"{protocol} protocol, {members} members, {partitions} partitions"
            yield session.sample(case, f"seconds to settle, {event}", "s", seconds)

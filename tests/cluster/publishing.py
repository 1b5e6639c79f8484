"""Publishes to a running cluster as an ordinary client does, and waits until all is acknowledged."""

from collections.abc import Callable, Iterable

from confluent_kafka import Producer

from tests.cluster.running_cluster import RunningCluster

_SECONDS_MAX = 60.0


def publish(
    cluster: RunningCluster,
    topic: str,
    values: int | Iterable[int],
    *,
    partition_of: Callable[[int], int] | None = None,
    keyed: bool = False,
    idempotent: bool = True,
    seconds: float = _SECONDS_MAX,
    servers: str | None = None,
) -> list[int]:
    """Publish these numbers, or as many as that; the offsets. `keyed`: each number is its message's key too."""
    offsets: list[int] = []
    failures: list[str] = []

    def on_delivery(error: object, message: object) -> None:
        if error is not None:
            failures.append(str(error))
        else:
            offsets.append(message.offset())  # type: ignore[attr-defined]

    producer = Producer(
        {
            "bootstrap.servers": servers or cluster.bootstrap_servers,
            "acks": "all",
            "enable.idempotence": idempotent,
            "message.timeout.ms": int(seconds * 1000),
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    numbers = list(range(values) if isinstance(values, int) else values)
    for value in numbers:
        key = str(value) if keyed else None
        partition = partition_of(value) if partition_of is not None else -1
        producer.produce(topic, str(value), key, partition=partition, on_delivery=on_delivery)
    producer.flush(seconds + 5)
    assert failures == []
    assert len(offsets) == len(numbers)
    return offsets

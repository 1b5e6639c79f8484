"""The load generator for NATS JetStream, with nats-py. Runs in the environment of the peers' clients.

Publishing waits for JetStream's acknowledgements with a window, as many as the client can have under way; the client's
own call for one publish at a time would measure its round trips instead.
"""

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any, Final

from bench.peers.load.main import (
    SECONDS_MAX,
    Role,
    Stopwatch,
    first_role,
    microseconds_since,
    serve,
    stamped,
    value_of,
)

_WINDOW: Final = 4_000


async def _connect(specification: dict[str, Any]) -> Any:
    nats = importlib.import_module("nats")
    return await nats.connect(
        f"nats://{specification['servers']}", allow_reconnect=False, connect_timeout=5, pending_size=64 << 20
    )


def _role(work: Callable[[Any, dict[str, Any]], Awaitable[dict[str, Any]]]) -> Role:
    async def connected(specification: dict[str, Any]) -> dict[str, Any]:
        connection = await _connect(specification)
        try:
            return await asyncio.wait_for(work(connection, specification), SECONDS_MAX)
        finally:
            await connection.close()

    return lambda specification: asyncio.run(connected(specification))


async def hello(connection: Any, specification: dict[str, Any]) -> dict[str, Any]:
    return {"version": str(connection.connected_server_version)}


async def create(connection: Any, specification: dict[str, Any]) -> dict[str, Any]:
    name = specification["queue"]
    await connection.jetstream().add_stream(name=name, subjects=[name])
    return {}


async def publish(connection: Any, specification: dict[str, Any]) -> dict[str, Any]:
    return await _publish(connection, specification, specification["queue"])


async def _publish(connection: Any, specification: dict[str, Any], subject: str) -> dict[str, Any]:
    value, seconds_max = value_of(specification["value_bytes"]), specification.get("seconds_max", SECONDS_MAX)
    count = answered = 0
    moved = asyncio.Event()
    failures: list[bytes] = []

    async def acknowledged(message: Any) -> None:
        nonlocal answered
        answered += 1
        if b'"error"' in message.data:
            failures.append(message.data)
        if answered % 500 == 0 or answered >= count:
            moved.set()  # the sender waits for space, or for all

    inbox = connection.new_inbox()
    await connection.subscribe(inbox, cb=acknowledged, pending_msgs_limit=-1, pending_bytes_limit=-1)
    watch = Stopwatch()
    while count < specification["count"] and (count % 100 or watch.seconds < seconds_max):
        count += 1
        await connection.publish(subject, value, reply=inbox)
        while count - answered >= _WINDOW:
            moved.clear()
            await moved.wait()
    while answered < count:
        moved.clear()
        if answered < count:
            await moved.wait()
    if failures:
        raise RuntimeError(f"refused: {failures[0].decode(errors='replace')}")
    return watch.result(count)


async def discard(connection: Any, specification: dict[str, Any]) -> dict[str, Any]:
    """To a subject without listeners: the server drops it."""
    count, value = specification["count"], value_of(specification["value_bytes"])
    watch = Stopwatch()
    for _ in range(count):
        await connection.publish("bench.unheard", value)
    await connection.flush(60)
    return watch.result(count)


async def consume(connection: Any, specification: dict[str, Any]) -> dict[str, Any]:
    """With an ordered push consumer, from the first message on."""
    wanted, seen = specification["count"], 0
    watch: Stopwatch | None = None
    done = asyncio.Event()

    async def received(_message: Any) -> None:
        nonlocal seen, watch
        if watch is None:
            watch = Stopwatch()
        seen += 1
        if seen >= wanted:
            done.set()

    await connection.jetstream().subscribe(
        specification["queue"], cb=received, ordered_consumer=True, pending_msgs_limit=-1, pending_bytes_limit=-1
    )
    await done.wait()
    return (watch or Stopwatch()).result(seen)


async def latency(connection: Any, specification: dict[str, Any]) -> dict[str, Any]:
    """At a rate, each publish a task of its own, so that a slow one does not hold up the next."""
    stream = connection.jetstream()
    queue, warmup = specification["queue"], specification["warmup"]
    total = specification["samples"] + warmup
    acknowledged: list[float] = []
    deliveries: list[float] = []
    done = asyncio.Event()

    async def received(message: Any) -> None:
        deliveries.append(microseconds_since(message.data))
        if len(deliveries) >= total:
            done.set()

    async def publish_one() -> None:
        value = stamped(specification["value_bytes"])
        await stream.publish(queue, value)
        acknowledged.append(microseconds_since(value))

    reader = await _connect(specification)
    await reader.jetstream().subscribe(queue, cb=received, ordered_consumer=True)
    loop = asyncio.get_running_loop()
    due = loop.time()
    tasks = []
    for _ in range(total):
        due += 1 / specification["rate"]
        await asyncio.sleep(max(0.0, due - loop.time()))
        tasks.append(asyncio.create_task(publish_one()))
    await asyncio.gather(*tasks)
    await done.wait()
    await reader.close()
    return {"publish_us": acknowledged[warmup:], "delivery_us": deliveries[warmup:]}


def _publish_one(specification: dict[str, Any]) -> None:
    async def one(connection: Any, specification: dict[str, Any]) -> dict[str, Any]:
        await create(connection, specification)
        await connection.jetstream().publish(specification["queue"], b"first")
        return {}

    _role(one)(specification)


if __name__ == "__main__":
    serve(
        {
            "hello": _role(hello),
            "create": _role(create),
            "publish": _role(publish),
            "discard": _role(discard),
            "consume": _role(consume),
            "latency": _role(latency),
            "first": first_role(_publish_one),
        }
    )

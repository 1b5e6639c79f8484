"""The load generator for RabbitMQ, with pika's callback connection. Runs in the environment of the peers' clients.

Messages are persistent, confirms come in their own time with a window of unconfirmed messages, consumers acknowledge
many at a time.
"""

import importlib
import time
from collections.abc import Callable, Collection
from itertools import takewhile
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

_WINDOW: Final = 2_000
_ACKNOWLEDGE_EVERY: Final = 500
_QUORUM: Final = {"x-queue-type": "quorum"}


def _pika() -> Any:
    return importlib.import_module("pika")


def _parameters(specification: dict[str, Any]) -> Any:
    host, _, port = specification["servers"].partition(":")
    return _pika().ConnectionParameters(host, int(port), heartbeat=0)


def _persistent() -> Any:
    return _pika().BasicProperties(delivery_mode=2)


def hello(specification: dict[str, Any]) -> dict[str, Any]:
    _pika().BlockingConnection(_parameters(specification)).close()
    return {}


def create(specification: dict[str, Any]) -> dict[str, Any]:
    connection = _pika().BlockingConnection(_parameters(specification))
    connection.channel().queue_declare(specification["queue"], durable=True, arguments=_QUORUM)
    connection.close()
    return {}


def _with_channel(specification: dict[str, Any], begin: Callable[[Any, Callable[[], None]], None]) -> None:
    """Open a channel, hand it to `begin` with what ends the connection, and return when that was called."""
    failures: list[BaseException] = []

    def opened(connection: Any) -> None:
        connection.ioloop.call_later(SECONDS_MAX, lambda: failed(TimeoutError(f"{SECONDS_MAX:.0f} s")))
        connection.channel(on_open_callback=lambda channel: begin(channel, connection.close))

    def failed(error: BaseException) -> None:
        failures.append(error)
        connection.ioloop.stop()

    connection = _pika().SelectConnection(
        _parameters(specification),
        on_open_callback=opened,
        on_open_error_callback=lambda _, error: failed(RuntimeError(str(error))),
        on_close_callback=lambda one, _: one.ioloop.stop(),
    )
    connection.ioloop.start()
    if failures:
        raise failures[0]


def _numbers(waiting: Collection[int], method: Any) -> list[int]:
    """Those of the waiting numbers, which are in order, that a confirm is about."""
    tag: int = method.delivery_tag
    if method.multiple:
        return list(takewhile(lambda number: number <= tag, waiting))
    return [tag] if tag in waiting else []


def publish(specification: dict[str, Any]) -> dict[str, Any]:
    return _publish(specification, "", specification["queue"])


def discard(specification: dict[str, Any]) -> dict[str, Any]:
    """To an exchange without queues: the server drops it, and confirms."""
    return _publish(specification, "amq.fanout", "")


def _publish(specification: dict[str, Any], exchange: str, key: str) -> dict[str, Any]:
    value, properties = value_of(specification["value_bytes"]), _persistent()
    seconds_max = specification.get("seconds_max", SECONDS_MAX)
    sent = refused = 0
    unconfirmed: dict[int, None] = {}
    results: list[dict[str, Any]] = []

    def begin(channel: Any, end: Callable[[], None]) -> None:
        watch = Stopwatch()

        def is_over() -> bool:
            return sent >= specification["count"] or (sent > 0 and watch.seconds > seconds_max)

        def send() -> None:
            nonlocal sent
            while len(unconfirmed) < _WINDOW and not is_over():
                sent += 1
                unconfirmed[sent] = None
                channel.basic_publish(exchange, key, value, properties)

        def answered(frame: Any) -> None:
            nonlocal refused
            for number in _numbers(unconfirmed, frame.method):
                del unconfirmed[number]
            refused += frame.method.NAME == "Basic.Nack"
            send()
            if not unconfirmed:
                results.append(watch.result(sent))
                end()

        channel.confirm_delivery(answered, callback=lambda _: send())

    _with_channel(specification, begin)
    if refused or not results:
        raise RuntimeError(f"{refused} messages refused, {len(unconfirmed)} of {sent} not confirmed")
    return results[0]


def consume(specification: dict[str, Any]) -> dict[str, Any]:
    """From the first message on; what was read is acknowledged and so removed, as in any queue."""
    wanted = specification["count"]
    results: list[dict[str, Any]] = []

    def begin(channel: Any, end: Callable[[], None]) -> None:
        seen = 0
        watch: Stopwatch | None = None

        def received(_channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
            nonlocal seen, watch
            if watch is None:
                watch = Stopwatch()
            seen += 1
            if seen % _ACKNOWLEDGE_EVERY == 0 or seen == wanted:
                channel.basic_ack(method.delivery_tag, multiple=True)
            if seen == wanted:
                results.append(watch.result(seen))
                end()

        channel.basic_qos(prefetch_count=_WINDOW)
        channel.basic_consume(specification["queue"], received)

    _with_channel(specification, begin)
    if not results:
        raise RuntimeError("the connection was closed before all messages had come")
    return results[0]


def latency(specification: dict[str, Any]) -> dict[str, Any]:
    """At a rate, confirms in their own time; a second channel consumes and acknowledges each message."""
    queue, warmup = specification["queue"], specification["warmup"]
    total = specification["samples"] + warmup
    acknowledged: list[float] = []
    deliveries: list[float] = []
    stamps: dict[int, bytes] = {}
    sent = 0

    def begin(channel: Any, end: Callable[[], None]) -> None:
        loop = channel.connection.ioloop
        due = time.monotonic()

        def check_end() -> None:
            if len(acknowledged) >= total and len(deliveries) >= total:
                end()

        def send() -> None:
            nonlocal sent, due
            sent += 1
            stamps[sent] = stamped(specification["value_bytes"])
            channel.basic_publish("", queue, stamps[sent], _persistent())
            due += 1 / specification["rate"]
            if sent < total:
                loop.call_later(max(0.0, due - time.monotonic()), send)

        def answered(frame: Any) -> None:
            numbers = _numbers(stamps, frame.method)
            acknowledged.extend(microseconds_since(stamps.pop(number)) for number in numbers)
            check_end()

        def received(reader: Any, method: Any, _properties: Any, body: bytes) -> None:
            deliveries.append(microseconds_since(body))
            reader.basic_ack(method.delivery_tag)
            check_end()

        channel.connection.channel(on_open_callback=lambda reader: reader.basic_consume(queue, received))
        channel.confirm_delivery(answered, callback=lambda _: send())

    _with_channel(specification, begin)
    return {"publish_us": acknowledged[warmup:], "delivery_us": deliveries[warmup:]}


def _publish_one(specification: dict[str, Any]) -> None:
    connection = _pika().BlockingConnection(_parameters(specification))
    channel = connection.channel()
    channel.queue_declare(specification["queue"], durable=True, arguments=_QUORUM)
    channel.confirm_delivery()
    channel.basic_publish("", specification["queue"], b"first", _persistent())
    connection.close()


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

"""Queues of a whole broker that look at their messages: delayed, filtered, urgent, in the order of keys, expired."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.queueing.doors import Handout, PartitionQueue, Wish
from martlet.broker.queueing.subscription_admin import SubscriptionWish
from martlet.queues.engine import Settlement, Verdict
from martlet.wire.batch import build_batch, read_batch_header
from tests.unit.broker.queueing.running import Running, values_of

ONE, FEW, MANY = Wish(1, 1 << 20), Wish(3, 1 << 20), Wish(100, 1 << 20)
Message = tuple[bytes, bytes | None, dict[str, str]]
"""Value, key and headers."""


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path)
    await running.app.start()
    yield running
    await running.app.stop()


async def publish(broker: Running, *messages: Message) -> int:
    """One batch; its base offset."""
    found = broker.services.partitions.get("t", 0)
    now_ms = broker.services.clock.now_ms()
    raw = build_batch(
        [
            (now_ms, key, value, [(name, text.encode()) for name, text in headers.items()])
            for value, key, headers in messages
        ]
    )
    view = memoryview(bytearray(raw))
    appended = found.append(view, read_batch_header(view), now_ms=now_ms)
    while found.high_watermark <= appended.last_offset:
        await asyncio.sleep(0.002)
    return appended.base_offset


def plain(value: bytes, **headers: str) -> Message:
    return value, None, {f"martlet-{name.replace('_', '-')}": text for name, text in headers.items()}


async def received(queue: PartitionQueue, wish: Wish = MANY, count: int = 1) -> list[bytes | None]:
    """At least this many messages, however many calls that takes."""
    values: list[bytes | None] = []
    async with asyncio.timeout(10):
        while len(values) < count:
            handout: Handout = await queue.hand_out("ann", wish)
            values += values_of(handout.batches)
            if len(values) < count:
                await asyncio.sleep(0.005)
    return values


async def test_a_delayed_message_holds_up_nothing_and_comes_when_it_is_due(broker: Running) -> None:
    await broker.topic(martlet_queue_features="delay")
    queue = await broker.subscribe()
    await publish(broker, plain(b"later", delay_ms="400"), plain(b"now"), plain(b"much later", delay_ms="3600000"))
    began = asyncio.get_running_loop().time()
    assert await received(queue) == [b"now"]
    assert await received(queue) == [b"later"]
    assert asyncio.get_running_loop().time() - began == pytest.approx(0.4, abs=0.15)
    await queue.settle("ann", [Settlement(0, 0, Verdict.ACCEPT), Settlement(1, 1, Verdict.ACCEPT)])
    assert queue.start == 3
    assert queue.low_mark <= 2, "the log is kept for what is scheduled"


async def test_what_is_scheduled_survives_a_restart(broker: Running) -> None:
    await broker.topic(martlet_queue_features="delay")
    queue = await broker.subscribe()
    await publish(broker, plain(b"later", delay_ms="700"), plain(b"now"))
    assert await received(queue) == [b"now"]
    await queue.settle("ann", [Settlement(1, 1, Verdict.ACCEPT)])
    await broker.restart()
    queue = await broker.queue()
    assert await received(queue) == [b"later"]
    assert (await queue.hand_out("bob", MANY)).deliveries == ()


async def test_a_topic_that_begins_to_have_delays_schedules_what_its_log_holds(broker: Running) -> None:
    await broker.topic()
    await publish(broker, plain(b"later", delay_ms="600"), plain(b"now"))
    await broker.services.config_admin.replace_topic_configs("t", {"martlet.queue.features": "delay"})
    queue = await broker.subscribe()
    assert await received(queue) == [b"now"]
    assert await received(queue) == [b"later"]


async def test_only_what_the_filter_wants_comes_and_the_start_moves_past_the_rest(broker: Running) -> None:
    await broker.topic()
    queue = await broker.subscribe(filter='headers["martlet-kind"] == "order"')
    await publish(broker, *(plain(b"%d" % at, kind="order" if at % 3 == 0 else "offer") for at in range(9)))
    assert await received(queue, count=3) == [b"0", b"3", b"6"]
    await queue.settle("ann", [Settlement(at, at, Verdict.ACCEPT) for at in (0, 3, 6)])
    assert queue.start == 9


async def test_a_filter_that_is_none_is_refused_with_the_place_of_the_mistake(broker: Running) -> None:
    await broker.topic()
    with pytest.raises(ApiError, match="at character 5 of the filter") as refused:
        await broker.services.queues.admin.create(SubscriptionWish("bad", ["t"], settings={"filter": "key = 1"}))
    assert refused.value.code is ErrorCode.INVALID_CONFIG


async def test_urgent_messages_overtake_what_waits(broker: Running) -> None:
    await broker.topic(martlet_queue_features="priority")
    queue = await broker.subscribe()
    await publish(broker, *(plain(b"low", priority="0") for _ in range(50)))
    await publish(broker, plain(b"high", priority="9"))
    assert await received(queue, ONE) == [b"high"]
    assert await received(queue, ONE) == [b"low"]


async def test_messages_of_one_key_come_one_after_the_other(broker: Running) -> None:
    await broker.topic(martlet_queue_features="key-order")
    queue = await broker.subscribe()
    await publish(broker, *((b"%s%d" % (key, at), key, {}) for at in range(2) for key in (b"a", b"b")))
    assert await received(queue, count=2) == [b"a0", b"b0"]
    await queue.settle("ann", [Settlement(0, 0, Verdict.RELEASE)])
    assert await received(queue) == [b"a0"], "what failed comes before the rest of its key"
    await queue.settle("ann", [Settlement(0, 0, Verdict.ACCEPT)])
    assert await received(queue) == [b"a1"]


async def test_what_has_expired_is_not_delivered(broker: Running) -> None:
    await broker.topic(martlet_queue_features="expiry")
    await publish(broker, plain(b"soon over", expire_ms="1"), plain(b"stays", expire_ms="60000"))
    await asyncio.sleep(0.02)
    queue = await broker.subscribe()
    assert await received(queue) == [b"stays"]


async def test_after_a_restart_urgency_and_order_of_keys_are_known_again(broker: Running) -> None:
    await broker.topic(martlet_queue_features="priority,key-order")
    queue = await broker.subscribe()
    messages = [(b"%d" % at, b"k" if at < 2 else None, {"martlet-priority": str(at)}) for at in range(5)]
    await publish(broker, *messages)
    assert await received(queue, ONE) == [b"4"]
    await queue.settle("ann", [Settlement(4, 4, Verdict.ACCEPT)])
    await broker.restart()
    queue = await broker.queue()
    assert [await received(queue, ONE) for _ in range(3)] == [[b"3"], [b"2"], [b"0"]]


async def test_a_filter_given_later_holds_from_the_frontier_on(broker: Running) -> None:
    await broker.topic()
    queue = await broker.subscribe()
    await publish(broker, plain(b"0", kind="a"))
    assert await received(queue) == [b"0"]
    settings = {"filter": 'headers["martlet-kind"] == "b"'}
    await broker.services.queues.admin.alter(SubscriptionWish("work", settings=settings))
    await publish(broker, plain(b"1", kind="a"), plain(b"2", kind="b"))
    assert await received(queue) == [b"2"]
    await queue.settle("ann", [Settlement(0, 0, Verdict.RELEASE)])
    assert await received(queue) == [b"0"], "what was met before comes as before"


async def test_a_delayed_message_can_be_cancelled_until_it_is_out_also_over_a_restart(broker: Running) -> None:
    await broker.topic(martlet_queue_features="delay")
    queue = await broker.subscribe()
    await publish(broker, plain(b"0", delay_ms="600"), plain(b"1", delay_ms="600"), plain(b"2"))
    assert await received(queue) == [b"2"]
    assert (queue.status(1).state, queue.depth().scheduled) == ("scheduled", 2)
    await queue.cancel(0)
    assert queue.status(0).state == "cancelled"
    with pytest.raises(ApiError, match="cannot be cancelled: leased"):
        await queue.cancel(2)
    await queue.settle("ann", [Settlement(2, 2, Verdict.ACCEPT)])
    await broker.restart()
    queue = await broker.queue()
    assert await received(queue) == [b"1"]
    with pytest.raises(ApiError, match="cannot be cancelled: finished"):
        await queue.cancel(0)


async def test_a_broker_that_was_killed_loses_repeats_and_hurries_no_delayed_message(
    broker: Running, tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    await broker.topic(martlet_queue_features="delay,priority")
    queue = await broker.subscribe(window_max="1000")
    count = 60
    base_ms = broker.services.clock.now_ms() + 200
    dues = [base_ms + 25 * (at * 37 % count) for at in range(count)]
    for at in range(0, count, 6):
        each = range(at, at + 6)
        await publish(broker, *(plain(b"%d" % one, deliver_at=str(dues[one]), priority=str(one % 10)) for one in each))
    settled: set[int] = set()
    async with asyncio.timeout(10):
        while len(settled) < count // 3:
            handout = await queue.hand_out("ann", FEW)
            got = [int(value or b"") for value in values_of(handout.batches)]
            assert all(dues[one] <= broker.services.clock.now_ms() for one in got)
            await queue.settle("ann", [Settlement(one, one, Verdict.ACCEPT) for one in got])
            settled |= set(got)
            await asyncio.sleep(0.005)
    killed = tmp_path_factory.mktemp("killed") / "data"
    shutil.copytree(tmp_path, killed)  # what a kill leaves behind
    after = Running(killed)
    await after.app.start()
    try:
        queue = await after.queue()
        rest: list[int] = []
        async with asyncio.timeout(15):
            while len(rest) < count - len(settled):
                handout = await queue.hand_out("bob", MANY)
                got = [int(value or b"") for value in values_of(handout.batches)]
                assert all(dues[one] <= after.services.clock.now_ms() for one in got)
                rest += got
                await asyncio.sleep(0.005)
        assert sorted([*settled, *rest]) == list(range(count))
    finally:
        await after.app.stop()

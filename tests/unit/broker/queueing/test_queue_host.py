"""Queues of a whole broker in one event loop: served, settled, kept over restarts, paused, moved and deleted."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.queueing.doors import NOTHING, Wish
from martlet.broker.queueing.subscription_admin import SubscriptionWish
from martlet.queues.engine import Delivery, Settlement, Verdict
from martlet.wire.batch import CONTROL_BIT, build_batch, read_batch_header, rebuild_batch
from martlet.wire.compression import Compression
from tests.unit.broker.queueing.running import Running, values_of

FEW = Wish(3, 1 << 20)
MANY = Wish(100, 1 << 20)


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[Running]:
    running = Running(tmp_path)
    await running.app.start()
    yield running
    await running.app.stop()


async def test_messages_are_handed_out_once_and_settled(broker: Running) -> None:
    await broker.topic()
    await broker.publish(*(b"%d" % number for number in range(5)))
    queue = await broker.subscribe()
    ann = await queue.hand_out("ann", FEW)
    bob = await queue.hand_out("bob", MANY)
    assert ann.deliveries == (Delivery(0, 2, 1),)
    assert bob.deliveries == (Delivery(3, 4, 1),)
    assert values_of(ann.batches) == [b"0", b"1", b"2"], "a slice of the batch, not all of it"
    assert values_of(bob.batches) == [b"3", b"4"]
    await queue.settle("ann", [Settlement(0, 2, Verdict.ACCEPT)])
    assert queue.start == 3
    assert await queue.hand_out("ann", FEW) is NOTHING
    with pytest.raises(ApiError) as caught:
        queue.settle("ann", [Settlement(3, 3, Verdict.ACCEPT)])
    assert caught.value.code is ErrorCode.INVALID_RECORD_STATE


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
async def test_a_whole_batch_goes_out_as_it_came_and_parts_uncompressed(
    broker: Running, compression: Compression
) -> None:
    await broker.topic()
    await broker.publish(*(b"%d" % number for number in range(10)), compression=compression)
    queue = await broker.subscribe()
    whole = await queue.hand_out("ann", MANY)
    assert values_of(whole.batches) == [b"%d" % number for number in range(10)]
    await queue.settle("ann", [Settlement(0, 9, Verdict.RELEASE)])
    first = await queue.hand_out("ann", FEW)
    second = await queue.hand_out("ann", FEW)
    assert values_of([*first.batches, *second.batches]) == [b"%d" % number for number in range(6)]
    assert first.deliveries[0].attempts == 2


async def test_what_does_not_fit_is_given_back_uncounted_and_the_first_message_always_fits(broker: Running) -> None:
    await broker.topic()
    for number in range(4):
        await broker.publish(b"%d" % number * 1000)
    queue = await broker.subscribe()
    small = await queue.hand_out("ann", Wish(4, 10))
    assert small.deliveries == (Delivery(0, 0, 1),)
    rest = await queue.hand_out("bob", Wish(4, 2500))
    assert rest.deliveries == (Delivery(1, 2, 1),)


async def test_offsets_without_a_message_are_finished_by_the_way(broker: Running) -> None:
    await broker.topic()
    await broker.publish(b"0")
    await broker.publish(b"marker", attributes=CONTROL_BIT)
    await broker.publish(b"2")
    queue = await broker.subscribe()
    got = await queue.hand_out("ann", MANY)
    assert values_of(got.batches) == [b"0", b"2"]
    assert got.deliveries == (Delivery(0, 0, 1), Delivery(2, 2, 1))
    await queue.settle("ann", [Settlement(0, 0, Verdict.ACCEPT), Settlement(2, 2, Verdict.ACCEPT)])
    assert queue.start == 3


async def test_a_parked_receiver_is_woken_by_a_publish_a_release_and_the_end_of_a_lease(broker: Running) -> None:
    await broker.topic()
    queue = await broker.subscribe(lease_ms="300")
    woken = asyncio.Event()
    queue.add_waiter(woken.set)

    async def wakes() -> None:
        async with asyncio.timeout(5):
            await woken.wait()
        woken.clear()

    await broker.publish(b"x")
    await wakes()
    await queue.hand_out("ann", FEW)
    await asyncio.sleep(0.05)
    woken.clear()
    await queue.settle("ann", [Settlement(0, 0, Verdict.RELEASE)])
    await wakes()
    await queue.hand_out("ann", FEW)
    await wakes()
    assert (await queue.hand_out("bob", FEW)).deliveries == (Delivery(0, 0, 3),)


async def test_state_survives_a_restart_and_counts_stay(broker: Running) -> None:
    await broker.topic()
    await broker.publish(*(b"%d" % number for number in range(10)))
    queue = await broker.subscribe()
    await queue.hand_out("ann", MANY)
    settled = [Settlement(0, 3, Verdict.ACCEPT), Settlement(5, 5, Verdict.ACCEPT), Settlement(6, 6, Verdict.RELEASE)]
    await queue.settle("ann", settled)
    await broker.restart()
    queue = await broker.queue()
    got = await queue.hand_out("bob", MANY)
    assert got.deliveries == (Delivery(4, 4, 1), Delivery(6, 6, 2), Delivery(7, 9, 1))


async def test_two_subscriptions_each_get_every_message(broker: Running) -> None:
    await broker.topic()
    await broker.publish(b"x")
    first, second = await broker.subscribe("one"), await broker.subscribe("two")
    assert (await first.hand_out("ann", FEW)).message_count == 1
    assert (await second.hand_out("ann", FEW)).message_count == 1


async def test_a_subscription_begins_with_what_is_published_after_it_was_made(broker: Running) -> None:
    await broker.topic()
    await broker.publish(b"before")
    await asyncio.sleep(0.01)
    queue = await broker.subscribe(start="latest")
    await asyncio.sleep(0.01)
    await broker.publish(b"after")
    assert values_of((await queue.hand_out("ann", FEW)).batches) == [b"after"]


async def test_a_rejected_message_is_copied_with_its_story_and_then_finished(broker: Running) -> None:
    await broker.topic()
    await broker.topic("dead")
    await broker.publish(b"good", b"bad")
    queue = await broker.subscribe(dead_letter_topic="dead")
    await queue.hand_out("ann", FEW)
    await queue.settle("ann", [Settlement(1, 1, Verdict.REJECT)], reason="no such customer")
    (letter,) = await broker.all_of("dead")
    assert (letter.key, letter.value) == (b"key", b"bad")
    headers = dict(letter.headers)
    assert headers["h"] == b"1"
    story = {name.removeprefix("martlet-dead-"): value for name, value in headers.items() if "dead" in name}
    assert story["reason"] == b"rejected"
    assert story["detail"] == b"no such customer"
    assert (story["subscription"], story["topic"], story["partition"], story["offset"]) == (b"work", b"t", b"0", b"1")
    assert story["attempts"] == b"1"
    for _ in range(500):
        if queue.status(1).state == "dead-lettered":
            break
        await asyncio.sleep(0.01)
    assert queue.status(1).state in ("dead-lettered", "finished")
    assert queue.low_mark == 0


async def test_a_dead_letter_topic_is_checked_when_the_subscription_is_made(broker: Running) -> None:
    await broker.topic()
    with pytest.raises(ApiError, match="create it first"):
        await broker.subscribe(dead_letter_topic="nowhere")
    with pytest.raises(ApiError, match="come back"):
        await broker.subscribe(dead_letter_topic="t")


async def test_a_paused_subscription_hands_out_nothing_until_it_goes_on(broker: Running) -> None:
    await broker.topic()
    await broker.publish(b"x")
    queue = await broker.subscribe()
    await broker.services.queues.admin.alter(SubscriptionWish("work", is_paused=True))
    assert await queue.hand_out("ann", FEW) is NOTHING
    assert queue.why_nothing() == "the subscription is paused"
    await broker.services.queues.admin.alter(SubscriptionWish("work", is_paused=False))
    assert (await queue.hand_out("ann", FEW)).message_count == 1


async def test_a_seek_forgets_leases_and_goes_on_elsewhere(broker: Running) -> None:
    await broker.topic()
    await broker.publish(*(b"%d" % number for number in range(5)))
    queue = await broker.subscribe()
    await queue.hand_out("ann", MANY)
    await queue.seek(2)
    with pytest.raises(ApiError):
        queue.settle("ann", [Settlement(2, 2, Verdict.ACCEPT)])
    assert values_of((await queue.hand_out("bob", MANY)).batches) == [b"2", b"3", b"4"]
    with pytest.raises(ApiError) as caught:
        await queue.seek(6)
    assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_deleted_subscription_is_gone_and_one_made_again_inherits_nothing(broker: Running) -> None:
    await broker.topic()
    await broker.publish(*(b"%d" % number for number in range(5)))
    queue = await broker.subscribe()
    await queue.hand_out("ann", MANY)
    await queue.settle("ann", [Settlement(0, 4, Verdict.ACCEPT)])
    await broker.services.queues.admin.delete("work")
    with pytest.raises(ApiError) as caught:
        await queue.hand_out("ann", FEW)
    assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    again = await broker.subscribe()
    assert (await again.hand_out("ann", MANY)).deliveries == (Delivery(0, 4, 1),)


async def test_a_deleted_topic_takes_its_queues_and_its_companion_along(broker: Running) -> None:
    await broker.topic()
    queue = await broker.subscribe()
    await broker.services.topic_admin.delete_topic("t")
    with pytest.raises(ApiError):
        await queue.hand_out("ann", FEW)
    assert broker.services.image.topics() == ()


async def test_a_share_group_is_a_subscription_with_defaults(broker: Running) -> None:
    await broker.topic()
    topic = broker.services.image.topic("t")
    assert topic is not None
    await broker.services.queues.ensure("group", [topic.id])
    await broker.services.queues.ensure("group", [topic.id])
    queue = await broker.queue("group")
    await asyncio.sleep(0.01)
    await broker.publish(b"x")
    assert (await queue.hand_out("member", FEW)).message_count == 1
    assert [name for _, _, name, _ in broker.services.queues.served()] == ["group"]


async def test_the_state_log_is_cut_behind_its_snapshots(broker: Running) -> None:
    await broker.topic()
    queue = await broker.subscribe()
    for number in range(30):
        await broker.publish(b"%d" % number)
        got = await queue.hand_out("ann", FEW)
        await queue.settle("ann", [Settlement(run.first, run.last, Verdict.ACCEPT) for run in got.deliveries])
    (pair,) = broker.services.queues._pairs.values()
    assert pair.log.partition is not None
    end = pair.log.partition.log.end_offset
    assert end >= 30
    pair.queues.carry_forward(end)
    await broker.publish(b"more")
    got = await queue.hand_out("ann", FEW)
    await queue.settle("ann", [Settlement(run.first, run.last, Verdict.ACCEPT) for run in got.deliveries])
    await asyncio.sleep(0.05)
    assert pair.log.partition.log.log_start_offset >= end
    await broker.restart()
    assert (await broker.queue()).start == 31


async def test_a_batch_that_cannot_be_opened_holds_up_no_others_and_ends_among_the_dead(broker: Running) -> None:
    await broker.topic()
    await broker.topic("dead")
    partition = broker.services.partitions.get("t", 0)
    good = build_batch([(1, b"k", b"%d" % number, []) for number in range(3)])
    header = read_batch_header(good)
    raw = memoryview(bytearray(rebuild_batch(header, b"\xff" * 60)))
    partition.append(raw, read_batch_header(raw), now_ms=1)
    await broker.publish(b"sound")
    queue = await broker.subscribe(attempts_max="1", dead_letter_topic="dead")
    bad = await queue.hand_out("ann", Wish(2, 1 << 20))
    assert bad.deliveries == (Delivery(0, 1, 1),)
    rest = await queue.hand_out("bob", MANY)
    assert rest.deliveries == (Delivery(2, 3, 1),)
    await queue.settle("ann", [Settlement(0, 1, Verdict.RELEASE)])
    letters = await broker.all_of("dead", 2)
    assert [dict(letter.headers)["martlet-dead-offset"] for letter in letters] == [b"0", b"1"]
    assert all("martlet-dead-unreadable" in dict(letter.headers) for letter in letters)


async def test_the_depth_of_every_subscription_is_exported(broker: Running) -> None:
    await broker.topic()
    await broker.publish(*(b"%d" % number for number in range(5)))
    queue = await broker.subscribe()
    await queue.hand_out("ann", FEW)
    tables = {table.name: table for table in broker.services.metrics.gauge_tables}
    rows = dict(tables["martlet_queue_messages"].read())
    assert rows["work", "waiting"] == 2
    assert rows["work", "leased"] == 3


async def test_a_settled_message_needs_the_epoch_in_which_it_was_leased(broker: Running) -> None:
    await broker.topic()
    queue = await broker.subscribe()
    before = queue.lease_epoch
    await broker.restart()
    assert (await broker.queue()).lease_epoch > before

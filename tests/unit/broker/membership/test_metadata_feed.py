"""The metadata feed: who hears what and when, and that it neither stops nor fails in silence."""

import asyncio

import pytest
from sim.clock import SimClock
from sim.store import SimStore, SimStoreState

from martlet.base.errors import StorageFailure
from martlet.broker.membership.metadata_feed import MetadataFeed
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.keys import CLUSTER_KEY, topic_key
from martlet.cluster.records import ClusterRecord, encode_record
from martlet.cluster.store import StoreClosed, StoreReplaced, StoreUnavailable
from tests.unit.cluster.images import FollowedStore, partition, puts, topic


class Feeding:
    """A feed over a simulated store, with everything it says."""

    def __init__(self) -> None:
        self.state = SimStoreState()
        self.store = SimStore(SimClock(), self.state)
        self.writer = SimStore(SimClock(), self.state)
        self.failures: list[BaseException] = []
        self.heard: list[ImageDelta] = []
        self.feed = MetadataFeed(self.store, MetadataImage(), on_failure=self.failures.append)
        self.feed.add_listener(self.heard.append)

    async def write(self, name: str, number: int) -> int:
        plan = puts(topic(name, number), partition(number, 0))
        return (await self.writer.commit({}, plan.puts)).revision


async def test_what_is_there_at_the_start_is_heard_as_a_change() -> None:
    feeding = Feeding()
    await feeding.write("t", 1)
    await feeding.feed.start()
    assert [made.name for made in feeding.heard[0].topics_created] == ["t"]
    await feeding.feed.aclose()


async def test_a_start_without_the_store_can_be_tried_again() -> None:
    feeding = Feeding()
    await feeding.write("t", 1)
    feeding.store.refuse_next()
    with pytest.raises(StoreUnavailable):
        await feeding.feed.start()
    await feeding.feed.start()
    assert [made.name for made in feeding.heard[0].topics_created] == ["t"]
    await feeding.feed.aclose()


async def test_listeners_hear_before_those_who_wait_are_woken() -> None:
    feeding = Feeding()
    await feeding.feed.start()
    waiting = asyncio.create_task(feeding.feed.wait_applied(1))
    await feeding.write("t", 1)
    await asyncio.wait_for(waiting, 5)
    assert len(feeding.heard) == 1
    await feeding.feed.wait_applied(1)
    await feeding.feed.aclose()


async def test_each_waiter_waits_for_its_own_revision() -> None:
    feeding = Feeding()
    await feeding.feed.start()
    waits = [asyncio.create_task(feeding.feed.wait_applied(revision)) for revision in (2, 1, 3)]
    await feeding.write("t", 1)
    await asyncio.wait_for(waits[1], 5)
    assert [wait.done() for wait in waits] == [False, True, False]
    waits[0].cancel()
    await feeding.write("u", 2)
    await feeding.write("v", 3)
    await asyncio.wait_for(waits[2], 5)
    await feeding.feed.aclose()


async def test_a_forgotten_history_is_listed_again_and_nothing_is_missed() -> None:
    feeding = Feeding()
    await feeding.write("t", 1)
    await feeding.feed.start()
    feeding.store.disconnect()
    await asyncio.sleep(0.01)
    await feeding.writer.commit({}, {}, delete_prefixes=["topic/", "partition/"])
    revision = await feeding.write("u", 2)
    feeding.state.compact()
    feeding.store.reconnect()
    await asyncio.wait_for(feeding.feed.wait_applied(revision), 5)
    assert [each.name for each in feeding.feed.image.topics()] == ["u"]
    assert [gone.name for gone in feeding.heard[-1].topics_deleted] == ["t"]
    assert feeding.failures == []
    await feeding.feed.aclose()


async def test_a_failing_listener_ends_the_feed_and_is_reported() -> None:
    feeding = Feeding()
    await feeding.feed.start()

    def fail(delta: ImageDelta) -> None:
        raise StorageFailure("no space")

    feeding.feed.add_listener(fail)
    waiting = asyncio.create_task(feeding.feed.wait_applied(1))
    await feeding.write("t", 1)
    with pytest.raises(StorageFailure, match="no space"):
        await asyncio.wait_for(waiting, 5)
    with pytest.raises(StorageFailure, match="no space"):
        await feeding.feed.wait_applied(2)
    assert [str(failure) for failure in feeding.failures] == ["no space"]
    await feeding.feed.aclose()


async def test_a_damaged_value_is_reported_with_its_key() -> None:
    feeding = Feeding()
    await feeding.feed.start()
    await feeding.writer.commit({}, {"topic/t": b"garbage"})
    await asyncio.sleep(0.02)
    assert len(feeding.failures) == 1
    assert "topic/t" in str(feeding.failures[0])
    await feeding.feed.aclose()


async def _with_cluster(feeding: Feeding) -> None:
    await feeding.writer.commit({}, {CLUSTER_KEY: encode_record(ClusterRecord("mine", 1))})
    await feeding.feed.wait_applied(await feeding.write("t", 1))
    feeding.heard.clear()


@pytest.mark.parametrize("other", [None, "theirs"])
@pytest.mark.parametrize("by_listing", [False, True])
async def test_a_store_that_holds_another_cluster_or_none_any_more_ends_the_feed_before_anybody_hears_of_it(
    other: str | None, by_listing: bool
) -> None:
    feeding = Feeding()
    await feeding.feed.start()
    await _with_cluster(feeding)
    if by_listing:
        feeding.store.disconnect()
        await asyncio.sleep(0.01)
    changed = {} if other is None else {CLUSTER_KEY: encode_record(ClusterRecord(other, 2))}
    deleted = [CLUSTER_KEY] if other is None else []
    await feeding.writer.commit({}, changed, [*deleted, topic_key("t")])
    if by_listing:
        feeding.state.compact()
        feeding.store.reconnect()
    await asyncio.sleep(1)
    assert [type(failure) for failure in feeding.failures] == [StoreReplaced]
    assert "mine" in str(feeding.failures[0])
    assert feeding.heard == []
    assert feeding.feed.image.topic("t") is not None, "what is known stays as it was"
    await feeding.feed.aclose()


async def test_a_store_closed_under_the_feed_is_a_failure() -> None:
    feeding = Feeding()
    await feeding.feed.start()
    await asyncio.sleep(0.01)
    await feeding.store.close()
    await asyncio.sleep(0.01)
    assert [type(failure) for failure in feeding.failures] == [StoreClosed]
    await feeding.feed.aclose()


async def test_closing_the_feed_tells_those_who_wait_and_is_no_failure() -> None:
    feeding = Feeding()
    await feeding.feed.start()
    waiting = asyncio.create_task(feeding.feed.wait_applied(9))
    await asyncio.sleep(0.01)
    await feeding.feed.aclose()
    with pytest.raises(StoreClosed):
        await waiting
    assert feeding.failures == []


async def test_the_image_equals_one_that_followed_every_single_commit() -> None:
    feeding, followed = Feeding(), FollowedStore()
    await feeding.feed.start()
    for number in range(30):
        plan = puts(
            topic(f"t{number % 7}", number % 7, configs={"retention.ms": str(number)}), partition(number % 7, 0)
        )
        followed.commit(plan)
        revision = (await feeding.writer.commit({}, plan.puts)).revision
    await feeding.feed.wait_applied(revision)
    assert feeding.feed.image.topics() == followed.image.topics()
    await feeding.feed.aclose()

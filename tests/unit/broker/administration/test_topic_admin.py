"""The admin service on a real and on a simulated store: what holds when a call returns, over restarts, among rivals."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.administration.producer_ids import allocate_producer_ids
from martlet.broker.membership.broker_registration import elect_own_partitions
from martlet.cluster.topic_decisions import TopicWish
from martlet.configs.changes import ConfigChange, ConfigOperation
from martlet.configs.effective import BrokerLayers, effective_topic_config
from tests.unit.broker.administration.admin_bench import Site, leader_epochs


@pytest.fixture(params=["sim", "sqlite"])
async def site(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Site]:
    made = Site(request.param, tmp_path)
    yield made
    await made.stop_all()


def _set(name: str, value: str) -> ConfigChange:
    return ConfigChange(name, ConfigOperation.SET, value)


async def test_a_fresh_broker_starts_with_one_commit(site: Site) -> None:
    bench = await site.start()
    assert (await bench.store.list("")).revision == 1
    assert len(bench.image.cluster_id) == 22
    assert bench.image.incarnations() == {1: 1}


async def test_a_created_topic_is_in_the_image_when_the_call_returns(site: Site) -> None:
    bench = await site.start()
    made = await bench.admin.create_topic(TopicWish(name="t", partition_count=3, configs={"retention.ms": "5"}))
    assert bench.image.topic("t") == made
    assert [record.leader for record in bench.image.partitions("t")] == [1, 1, 1]
    assert bench.deltas[-1].topics_created == [made]


async def test_a_bare_name_is_enough(site: Site) -> None:
    bench = await site.start()
    assert (await bench.admin.create_topic("t")).partition_count == 1


async def test_validation_alone_makes_nothing(site: Site) -> None:
    bench = await site.start()
    before = (await bench.store.list("")).revision
    record = await bench.admin.create_topic(TopicWish(name="t", partition_count=300), validate_only=True)
    assert (record.partition_count, record.id) == (300, bytes(16))
    with pytest.raises(ApiError):
        await bench.admin.create_topic(TopicWish(name="t", replication_factor=2), validate_only=True)
    made = await bench.admin.create_topic("u")
    assert (await bench.admin.create_partitions("u", 4, validate_only=True)).partition_count == 4
    await bench.configs.alter_topic_configs("u", [_set("retention.ms", "5")], validate_only=True)
    await bench.configs.alter_broker_configs(None, [_set("log.retention.ms", "5")], validate_only=True)
    assert bench.image.topic("u") == made
    assert (await bench.store.list("")).revision == before + 1


async def test_a_name_that_exists_is_refused(site: Site) -> None:
    bench = await site.start()
    await bench.admin.create_topic("t")
    with pytest.raises(ApiError) as caught:
        await bench.admin.create_topic("t")
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


async def test_of_many_that_create_one_topic_at_once_one_succeeds_and_the_rest_get_an_error(site: Site) -> None:
    bench = await site.start()
    calls = [bench.admin.create_topic(name) for name in ("a.b", "a_b", "a.b", "a.b", "a_b")]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    refused = [outcome.code for outcome in outcomes if isinstance(outcome, ApiError)]
    assert len(refused) == 4
    assert set(refused) <= {ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert len(bench.image.topics()) == 1


async def test_two_brokers_on_one_store_see_each_others_topics(site: Site) -> None:
    first, second = await site.start(1), await site.start(2)
    await first.feed.wait_applied(second.image.revision)
    await first.admin.create_topic(TopicWish(name="t", partition_count=4))
    with pytest.raises(ApiError) as caught:
        await second.admin.create_topic("t")
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS
    assert {record.leader for record in second.image.partitions("t")} == {1, 2}
    await second.admin.delete_topic("t")
    await first.feed.wait_applied(second.image.revision)
    assert first.image.topic("t") is None


async def test_a_topic_is_deleted_by_name_or_id_with_everything_it_had(site: Site) -> None:
    bench = await site.start()
    first = await bench.admin.create_topic("t")
    second = await bench.admin.create_topic("u")
    assert await bench.admin.delete_topic("t") == first
    assert await bench.admin.delete_topic(topic_id=second.id) == second
    assert bench.image.topics() == ()
    assert (await bench.store.list("partition/")).entries == ()
    for wrong, code in (("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (None, ErrorCode.UNKNOWN_TOPIC_ID)):
        with pytest.raises(ApiError) as caught:
            await bench.admin.delete_topic(wrong, topic_id=None if wrong else first.id)
        assert caught.value.code is code


async def test_a_topic_made_again_has_another_id(site: Site) -> None:
    bench = await site.start()
    first = await bench.admin.create_topic("t")
    await bench.admin.delete_topic("t")
    second = await bench.admin.create_topic("t")
    assert first.id != second.id
    assert bench.image.topic_by_id(first.id) is None


async def test_a_large_topic_grows_and_goes_as_a_whole(site: Site) -> None:
    bench = await site.start()
    made = await bench.admin.create_topic(TopicWish(name="t", partition_count=230))
    assert len(bench.image.partitions("t")) == 230
    grown = await bench.admin.create_partitions("t", 450)
    assert (grown.id, len(bench.image.partitions("t"))) == (made.id, 450)
    assert (await bench.store.list("unfinished/")).entries == ()
    appeared = [len(delta.partitions) for delta in bench.deltas if delta.partitions]
    assert appeared == [230, 220], "partitions appear all at once"
    await bench.admin.delete_topic("t")
    assert (await bench.store.list("partition/")).entries == ()


async def test_settings_of_topics_are_altered_and_replaced(site: Site) -> None:
    bench = await site.start()
    await bench.admin.create_topic(TopicWish(name="t", configs={"retention.ms": "5"}))
    changed = await bench.configs.alter_topic_configs("t", [_set("segment.ms", "6")])
    assert changed.configs == {"retention.ms": "5", "segment.ms": "6"}
    assert bench.image.topic("t") == changed
    assert (await bench.configs.replace_topic_configs("t", {"segment.ms": "7"})).configs == {"segment.ms": "7"}
    revision = (await bench.store.list("")).revision
    await bench.configs.replace_topic_configs("t", {"segment.ms": "7"})
    assert (await bench.store.list("")).revision == revision, "what is so already is not written again"
    with pytest.raises(ApiError) as caught:
        await bench.configs.alter_topic_configs("unknown", [])
    assert caught.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_concurrent_changes_of_one_topic_are_all_kept(site: Site) -> None:
    bench = await site.start()
    await bench.admin.create_topic("t")
    names = ["retention.ms", "segment.ms", "segment.bytes", "retention.bytes", "flush.ms"]
    await asyncio.gather(*(bench.configs.alter_topic_configs("t", [_set(name, "99")]) for name in names))
    found = bench.image.topic("t")
    assert found is not None
    assert found.configs == dict.fromkeys(names, "99")


async def test_settings_of_brokers_take_effect_on_topics_without_their_own(site: Site) -> None:
    bench = await site.start()
    await bench.admin.create_topic("t")
    await bench.configs.alter_broker_configs(None, [_set("log.retention.ms", "5")])
    await bench.configs.replace_broker_configs(BrokerId(1), {"log.retention.ms": "4"})
    assert bench.deltas[-1].broker_configs == (1,)
    layers = BrokerLayers(bench.image.broker_configs(BrokerId(1)), bench.image.broker_configs(None))
    assert effective_topic_config({}, layers).number("retention.ms") == 4
    await bench.configs.replace_broker_configs(BrokerId(1), {})
    layers = BrokerLayers(bench.image.broker_configs(BrokerId(1)), bench.image.broker_configs(None))
    assert effective_topic_config({}, layers).number("retention.ms") == 5


async def test_producer_ids_never_repeat_over_restarts_and_rivals(site: Site) -> None:
    taken: list[int] = []
    for _ in range(3):
        bench = await site.start()
        for block in await asyncio.gather(*(allocate_producer_ids(bench.changes) for _ in range(4))):
            assert len(block) == 1000
            taken.extend(block)
        await bench.stop()
    assert len(set(taken)) == len(taken) == 12_000


async def test_every_restart_raises_every_leader_epoch(site: Site) -> None:
    bench = await site.start()
    await bench.admin.create_topic(TopicWish(name="large", partition_count=230))
    await bench.admin.create_topic("small")
    epochs, incarnation = leader_epochs(bench), bench.image.incarnations()[BrokerId(1)]
    assert set(epochs.values()) == {0}
    for _ in range(3):
        await bench.stop()
        bench = await site.start()
        restarted = bench.image.incarnations()[BrokerId(1)]
        assert restarted > incarnation
        assert all(leader_epochs(bench)[name] > epoch for name, epoch in epochs.items())
        assert all(record.is_led_by(BrokerId(1), restarted) for record in bench.image.partitions("large"))
        epochs, incarnation = leader_epochs(bench), restarted


async def test_a_broker_that_was_registered_again_elsewhere_elects_no_leader(site: Site) -> None:
    old = await site.start()
    await old.admin.create_topic("t")
    new = await site.start()
    await old.feed.wait_applied(new.image.revision)
    with pytest.raises(ApiError) as caught:
        await elect_own_partitions(old.changes, old.me)
    assert caught.value.code is ErrorCode.STALE_BROKER_EPOCH
    found = new.image.partition("t", 0)
    assert found is not None
    assert found.leader_epoch == 1

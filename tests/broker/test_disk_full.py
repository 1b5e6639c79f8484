"""A full disk: publishes are refused with an error that clients retry, reads go on, and space brings it all back."""

import contextlib
import os
import shutil
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from martlet.base.errors import ERROR_TABLE, DiskFull, ErrorCode
from martlet.stores.sqlite import SqliteStore
from martlet.testing.running_broker import RunningBroker
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from martlet.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tests.broker.broker_process import BrokerProcess
from tests.broker.group_requests import commit, committed, consumer_heartbeat, enter, fetch_offsets, heartbeat
from tests.broker.raw_client import RawClient
from tests.broker.requests import (
    batch_of,
    create_topic,
    new_producer_id,
    publish,
    publish_values,
    read_all,
    unique_topic,
    values_of,
)
from tests.broker.scrape import wait_until
from tests.broker.small_disk import MEBIBYTE, fill, may_mount, mounted

GIBIBYTE = 1 << 30

pytestmark = pytest.mark.usefixtures("expects_errors")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk") as place:
        yield place


@pytest.fixture
async def small_store(small_disk: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(str(small_disk / "metadata.db"))
    yield store
    await store.close()


def _code(client: RawClient, topic: str, batch: bytes) -> int:
    return publish(client, topic, batch).error_code


def test_publishes_are_refused_below_the_reserve_and_taken_again_above_it(
    make_broker: Callable[..., RunningBroker], tmp_path: Path
) -> None:
    reserve = shutil.disk_usage(tmp_path).free - GIBIBYTE
    running = make_broker(data=str(tmp_path / "data"), disk_reserve_bytes=max(reserve, 0))
    with RawClient(running.bootstrap_servers) as client:
        topic = create_topic(client)
        publish_values(client, topic, b"before")
        filler = tmp_path / "filler"
        try:
            with filler.open("wb") as file:
                os.posix_fallocate(file.fileno(), 0, 3 * GIBIBYTE)
            wait_until(lambda: _code(client, topic, batch_of(b"?")) == ErrorCode.KAFKA_STORAGE_ERROR, "refused")
            stored = values_of(read_all(client, topic))
            assert stored[0] == b"before"
            assert _code(client, topic, batch_of(b"refused")) == ErrorCode.KAFKA_STORAGE_ERROR
            assert values_of(read_all(client, topic)) == stored
        finally:
            filler.unlink(missing_ok=True)
        wait_until(lambda: _code(client, topic, batch_of(b"after")) == ErrorCode.NONE, "taken again")
        assert values_of(read_all(client, topic))[-1] == b"after"


def test_the_error_of_a_full_disk_is_one_that_clients_retry() -> None:
    assert ERROR_TABLE[ErrorCode.KAFKA_STORAGE_ERROR].retriable


# The rest needs a file system that is truly full, which only a process that may mount one can have. Where it may not,
# the test of the reserve above is what there is.
if may_mount():

    @pytest.mark.parametrize("batch_bytes", [100, 60_000, 900_000])
    def test_a_disk_without_a_byte_left_refuses_keeps_serving_and_recovers(small_disk: Path, batch_bytes: int) -> None:
        with BrokerProcess(small_disk / "data", disk_reserve_bytes=0) as process, RawClient(process.address) as client:
            topic = create_topic(client)
            publish_values(client, topic, b"before")
            producer_id = new_producer_id(client)
            fill(small_disk / "filler", leave_bytes=2 * MEBIBYTE)
            sequence = 0

            def publish_next() -> int:
                batch = batch_of(bytes(batch_bytes), producer=(producer_id, 0, sequence))
                return _code(client, topic, batch)

            while (code := publish_next()) == ErrorCode.NONE:
                sequence += 1
            assert code == ErrorCode.KAFKA_STORAGE_ERROR
            for _ in range(20):
                assert publish_next() == ErrorCode.KAFKA_STORAGE_ERROR
            assert len(read_all(client, topic)) == 1 + sequence
            (small_disk / "filler").unlink()
            wait_until(lambda: publish_next() == ErrorCode.NONE, "publishes are taken again")
            records = read_all(client, topic)
            assert len(records) == 2 + sequence, "the batch refused so often is there once"
            assert [record.offset for record in records] == list(range(2 + sequence))

    @pytest.mark.parametrize("ending", ["stop", "kill"])
    def test_a_broker_that_met_a_full_disk_starts_again_with_all_it_acknowledged(small_disk: Path, ending: str) -> None:
        process = BrokerProcess(small_disk / "data", disk_reserve_bytes=0).start()
        with RawClient(process.address) as client:
            topic = create_topic(client)
            fill(small_disk / "filler", leave_bytes=MEBIBYTE)
            acknowledged = 0
            while _code(client, topic, batch_of(b"%d" % acknowledged, bytes(50_000))) == ErrorCode.NONE:
                acknowledged += 1
        getattr(process, ending)()
        (small_disk / "filler").unlink()
        with process, RawClient(process.address) as client:
            stored = values_of(read_all(client, topic))
            assert stored[::2] == [b"%d" % number for number in range(acknowledged)]
            assert publish_values(client, topic, b"after") == 2 * acknowledged

    def test_administration_on_a_full_disk_fails_cleanly_and_works_again(small_disk: Path) -> None:
        with BrokerProcess(small_disk / "data", disk_reserve_bytes=0) as process, RawClient(process.address) as client:
            topic = create_topic(client)
            publish_values(client, topic, b"before")
            fill(small_disk / "filler")
            name = unique_topic()
            request = CreateTopicsRequest(topics=[CreatableTopic(name, 3, 1)])
            assert client.call(request, 7).topics[0].error_code in (ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR)
            assert values_of(read_all(client, topic)) == [b"before"]
            (small_disk / "filler").unlink()
            wait_until(lambda: _code(client, topic, batch_of(b"after")) == ErrorCode.NONE, "publishes are taken again")
            (result,) = client.call(request, 7).topics
            assert result.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            wait_until(lambda: _code(client, name, batch_of(b"x")) == ErrorCode.NONE, "the new topic works")

    def test_a_full_disk_refuses_commits_and_members_for_a_while_and_groups_recover_by_themselves(
        small_disk: Path,
    ) -> None:
        settings = {"disk_reserve_bytes": 0, "offsets_topic_partitions": 1, "consumer_group_session_timeout_ms": 1_000}
        process = BrokerProcess(small_disk / "data", **settings).start()
        retriable = ErrorCode.COORDINATOR_NOT_AVAILABLE
        try:
            with RawClient(process.address) as client:
                topic = create_topic(client)
                joined = enter(client, "classic")
                member = (joined.member_id, joined.generation_id)
                assert commit(client, "classic", topic, {0: 1}, member=member) == {0: ErrorCode.NONE}
                assert consumer_heartbeat(client, "consumer", "M" * 22, 0, topic).member_epoch == 1
                fill(small_disk / "filler")
                assert commit(client, "classic", topic, {0: 2}, member=member, note="x" * 4_000) == {0: retriable}
                # Large enough not to fit into what is left of the last block.
                joins = ConsumerGroupHeartbeatRequest("consumer", "N" * 22, 0, rack_id="r" * 5_000)
                joins.rebalance_timeout_ms, joins.subscribed_topic_names, joins.topic_partitions = 1_000, [topic], []
                assert client.call(joins, 1).error_code == retriable
                assert heartbeat(client, "classic", joined) == ErrorCode.NONE
                assert committed(client, "classic", topic) == 1
                (small_disk / "filler").unlink()

                def is_taken() -> bool:
                    return commit(client, "classic", topic, {0: 3}, member=member) == {0: ErrorCode.NONE}

                def has_lost_its_member() -> bool:
                    (described,) = client.call(ConsumerGroupDescribeRequest(["consumer"]), 0).groups
                    return bool(described.group_state == "Empty")

                wait_until(is_taken, "commits are taken again")
                wait_until(has_lost_its_member, "the session that ended meanwhile is over")
            process.kill()
            process.start()
            with RawClient(process.address) as client:
                wait_until(lambda: fetch_offsets(client, "classic", topic, 0)[0] == ErrorCode.NONE, "groups are loaded")
                assert committed(client, "classic", topic) == 3
        finally:
            process.kill()

    @pytest.mark.parametrize("leaves_blocks", [0, 7])
    def test_reads_go_on_when_another_program_has_filled_the_disk_with_the_metadata(
        small_disk: Path, leaves_blocks: int
    ) -> None:
        lease_ms = 2_000
        settings = {"disk_reserve_bytes": 0, "lease_ms": lease_ms}
        with BrokerProcess(small_disk / "data", **settings) as process, RawClient(process.address) as client:
            topic = create_topic(client)
            publish_values(client, topic, b"before")
            fill(small_disk / "filler", leave_bytes=leaves_blocks * 4096)
            until = time.monotonic() + 3 * lease_ms / 1000
            while time.monotonic() < until:
                assert values_of(read_all(client, topic)) == [b"before"]
                time.sleep(0.1)
            (small_disk / "filler").unlink()
            wait_until(lambda: _code(client, topic, batch_of(b"after")) == ErrorCode.NONE, "publishes are taken again")

    @pytest.mark.parametrize("ending", ["stop", "kill"])
    def test_a_broker_starts_on_a_full_disk_serves_what_it_has_and_takes_messages_once_there_is_space(
        small_disk: Path, tmp_path: Path, ending: str
    ) -> None:
        process = BrokerProcess(small_disk / "data", disk_reserve_bytes=MEBIBYTE)
        process.log_path = tmp_path / "log"  # not on the full disk
        with process, RawClient(process.address) as client:
            topic = create_topic(client)
            publish_values(client, topic, *[b"%d" % number for number in range(100)])
            fill(small_disk / "filler")
            getattr(process, ending)()
            fill(small_disk / "what it gave back")
            process.start()
            with RawClient(process.address) as again:
                assert len(read_all(again, topic)) == 100
                assert _code(again, topic, batch_of(b"refused")) == ErrorCode.KAFKA_STORAGE_ERROR
                (small_disk / "filler").unlink()
                wait_until(lambda: _code(again, topic, batch_of(b"after")) == ErrorCode.NONE, "publishes are taken")
                assert values_of(read_all(again, topic))[-1] == b"after"
            # What could not be written at the start was written since: a restart proves what was held.
            process.kill()
            process.start()
            with RawClient(process.address) as again:
                assert len(read_all(again, topic)) == 101

    def test_messages_leave_the_reserve_alone_however_fast_they_come(small_disk: Path) -> None:
        reserve = 6 * MEBIBYTE
        settings = {"disk_reserve_bytes": reserve}
        with BrokerProcess(small_disk / "data", **settings) as process, RawClient(process.address) as client:
            topic = create_topic(client, martlet_flush="never")
            batch = batch_of(bytes(500_000))
            requests = 60
            for _ in range(requests):
                client.send_produce([(topic, None, [(0, batch)])], 9)
            codes = [client.receive_produce(9)[1].topics[0].partitions[0].error_code for _ in range(requests)]
            assert set(codes) == {ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR}
            assert reserve - MEBIBYTE // 4 <= shutil.disk_usage(small_disk).free < reserve + 2 * MEBIBYTE
            assert len(read_all(client, topic)) == codes.count(ErrorCode.NONE)

    async def test_leases_live_and_small_commits_are_made_in_a_store_on_a_full_disk_for_as_long_as_it_is_full(
        small_disk: Path, small_store: SqliteStore
    ) -> None:
        lease = await small_store.grant(60_000)
        for number in range(500):
            await small_store.commit({}, {f"before/{number}": bytes(900)})
        fill(small_disk / "filler")
        revision = 0
        for number in range(1_500):
            await small_store.keep_alive(lease)
            revision = (await small_store.commit({"one": revision}, {"one": b"%d" % number}, lease=lease)).revision
        assert len((await small_store.list("before/")).entries) == 500

    async def test_what_a_store_on_a_full_disk_refused_did_not_happen_and_can_be_done_later(
        small_disk: Path, small_store: SqliteStore
    ) -> None:
        fill(small_disk / "filler")
        stored = 0
        with contextlib.suppress(DiskFull):
            while stored < 40:
                await small_store.commit({}, {f"big/{stored}": bytes(900_000)})
                stored += 1
        assert stored < 40
        assert len((await small_store.list("")).entries) == stored
        (small_disk / "filler").unlink()
        assert (await small_store.commit({}, {"big/late": bytes(900_000)})).succeeded

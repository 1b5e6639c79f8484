"""Shards come and go with the metadata, are loaded, get the news, and answer everybody at the end."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest

from martlet.base.clock import SystemClock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member
from martlet.broker.coordinators.group_requests import in_pieces
from martlet.broker.coordinators.internal_topic import partition_of_key
from martlet.broker.coordinators.shard_log import PartitionShardLog
from martlet.broker.ground.disk_space import DiskSpace
from martlet.broker.partitions.partition import Partition
from martlet.cluster.keys import partition_key, partition_prefix, topic_key
from martlet.cluster.records import PartitionRecord, encode_record
from martlet.cluster.store import CommitPlan, commit_plan
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.wire.batch import build_batch, read_batch_header
from tests.unit.broker.coordinators.coordinator_bench import PARTITIONS, CoordinatorBench


@pytest.fixture
async def bench() -> AsyncIterator[CoordinatorBench]:
    async with CoordinatorBench() as started:
        await started.metadata.admin.create_topic("t")
        yield started


async def code_of(call: object) -> ErrorCode:
    assert isinstance(call, asyncio.Future) or asyncio.iscoroutine(call)
    with pytest.raises(ApiError) as refused:
        await call
    return refused.value.code


async def test_offsets_are_there_after_a_restart(bench: CoordinatorBench) -> None:
    for number in range(20):
        assert await bench.commit(f"group-{number}", "t", number) == 0
    await bench.restart()
    for number in range(20):
        assert await eventually_committed(bench, f"group-{number}") == number
    assert bench.failures == []


async def eventually_committed(bench: CoordinatorBench, group: str) -> int:
    """The offset once the shard is loaded."""
    async with asyncio.timeout(10):
        while True:
            try:
                return await bench.committed(group, "t")
            except ApiError as error:
                if error.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    raise
                await asyncio.sleep(0.001)


async def test_only_shards_with_records_have_a_log(bench: CoordinatorBench) -> None:
    assert await bench.committed("g", "t") == -1
    assert [log.partition.topic for log in bench.logs] == []
    await bench.commit("g", "t", 1)
    assert [(log.partition.topic, log.partition.partition) for log in bench.logs] == [
        (CONSUMER_OFFSETS_TOPIC, partition_of_key("g", PARTITIONS))
    ]


async def test_a_partition_led_by_another_broker_has_no_shard_here(bench: CoordinatorBench) -> None:
    await bench.commit("g", "t", 1)
    waiting = asyncio.ensure_future(bench.join("g"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await change_partition(bench, "g", lambda record: replace(record, leader=BrokerId(2)))
    assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
    assert await code_of(bench.committed("g", "t")) is ErrorCode.NOT_COORDINATOR
    assert await bench.groups.coordinator_of("g") == 2


async def change_partition(
    bench: CoordinatorBench, group: str, change: Callable[[PartitionRecord], PartitionRecord]
) -> None:
    """Store the group's partition changed, and wait until this broker knows."""
    record = bench.metadata.image.partition(CONSUMER_OFFSETS_TOPIC, partition_of_key(group, PARTITIONS))
    assert record is not None
    key = partition_key(record.topic_id, record.partition)
    plan = CommitPlan(compares={key: record.mod_revision}, puts={key: encode_record(change(record))})
    result = await commit_plan(bench.metadata.store, plan)
    await bench.metadata.feed.wait_applied(result.revision)


async def test_a_leadership_that_comes_back_under_another_epoch_reloads_the_shard(bench: CoordinatorBench) -> None:
    assert await bench.commit("g", "t", 1) == 0
    before = bench.groups.machines()
    await change_partition(bench, "g", lambda record: replace(record, leader_epoch=LeaderEpoch(7)))
    assert await eventually_committed(bench, "g") == 1
    assert len(bench.groups.machines()) == len(before)
    assert sum(machine in before for machine in bench.groups.machines()) == len(before) - 1
    assert await bench.commit("g", "t", 2) == 0


async def test_a_commit_that_too_few_replicas_can_hold_is_refused_and_written_nowhere(bench: CoordinatorBench) -> None:
    assert await bench.commit("g", "t", 1) == 0
    replicas = (BrokerId(1), BrokerId(2), BrokerId(3))
    await change_partition(bench, "g", lambda record: replace(record, replicas=replicas))
    (log,) = bench.logs
    end_offset = log.end_offset
    assert await code_of(bench.commit("g", "t", 2)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert log.end_offset == end_offset
    assert await bench.committed("g", "t") == 1


async def test_a_new_leader_serves_no_group_before_all_it_holds_is_committed(bench: CoordinatorBench) -> None:
    assert await bench.commit("g", "t", 1) == 0
    everybody = (Member(BrokerId(1), bench.me.incarnation), Member(BrokerId(2), Incarnation(99)))
    both = tuple(member.broker for member in everybody)
    await change_partition(
        bench, "g", lambda record: replace(record, replicas=both, isr=everybody, leader_epoch=LeaderEpoch(7))
    )
    partition = bench.table.get(CONSUMER_OFFSETS_TOPIC, partition_of_key("g", PARTITIONS))
    partition.log.high_watermark = 0
    await asyncio.sleep(0.02)
    assert await code_of(bench.committed("g", "t")) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    end_offset = partition.log.end_offset
    partition.replica_fetched(everybody[1], leader_epoch=7, fetch_offset=end_offset, now_ms=1)
    assert await eventually_committed(bench, "g") == 1


async def test_a_broker_that_has_lost_its_lease_coordinates_nothing(bench: CoordinatorBench) -> None:
    assert await bench.commit("g", "t", 1) == 0
    bench.table.may_act = lambda: False
    assert await code_of(bench.committed("g", "t")) is ErrorCode.NOT_COORDINATOR
    assert await code_of(bench.commit("g", "t", 2)) is ErrorCode.NOT_COORDINATOR
    bench.table.may_act = lambda: True
    assert await bench.committed("g", "t") == 1


async def test_a_deleted_offsets_topic_takes_its_shards_along_and_is_recreated(bench: CoordinatorBench) -> None:
    await bench.commit("g", "t", 1)
    waiting = asyncio.ensure_future(bench.join("h"))
    await asyncio.sleep(0)
    topic = bench.metadata.image.topic(CONSUMER_OFFSETS_TOPIC)
    assert topic is not None
    key = topic_key(topic.name)
    plan = CommitPlan(compares={key: topic.mod_revision}, deletes=(key,), delete_prefixes=(partition_prefix(topic.id),))
    result = await commit_plan(bench.metadata.store, plan)
    await bench.metadata.feed.wait_applied(result.revision)
    assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
    assert bench.groups.machines() == []
    assert await bench.committed("g", "t") == -1
    assert len(bench.groups.machines()) == PARTITIONS


async def test_a_full_disk_is_a_passing_error_and_news_is_not_lost_by_it(bench: CoordinatorBench) -> None:
    await bench.commit("g", "t", 5)
    free_bytes = 0
    bench.table.space = DiskSpace(lambda: free_bytes, 1, SystemClock())
    bench.table.space.measure()
    assert await code_of(bench.commit("g", "t", 6)) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    await bench.metadata.admin.delete_topic("t")
    assert await bench.committed("g", "t") == 5
    free_bytes = 1 << 30
    bench.table.space.measure()
    async with asyncio.timeout(10):
        while await bench.committed("g", "t") != -1:
            await asyncio.sleep(0.05)


async def test_a_log_that_could_not_be_opened_is_not_taken_for_an_empty_one(bench: CoordinatorBench) -> None:
    await bench.commit("g", "t", 5)
    await bench.stop()
    name = f"{CONSUMER_OFFSETS_TOPIC}-{partition_of_key('g', PARTITIONS)}"
    (log_file,) = [entry[0] for entry in bench.disk.list_directory(f"/logs/{name}") if entry[0].endswith(".log")]
    bench.disk.flip_bit(f"/logs/{name}/{log_file}", 70 * 8)
    await bench.start()
    async with asyncio.timeout(10):
        while (code := await code_of(bench.committed("g", "t"))) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            await asyncio.sleep(0.001)
    assert code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await code_of(bench.commit("g", "t", 6)) is ErrorCode.COORDINATOR_NOT_AVAILABLE


async def commit_often(bench: CoordinatorBench, group: str) -> None:
    """So much that the start of the log is not looked at when it is opened; the offset is 99 in the end."""
    for offset in range(100):
        await bench.commit(group, "t", offset)


def damage(bench: CoordinatorBench, group: str) -> None:
    """Turn a bit at the start of the group's log; a second time turns it back."""
    directory = f"/logs/{CONSUMER_OFFSETS_TOPIC}-{partition_of_key(group, PARTITIONS)}"
    (log_file,) = [entry[0] for entry in bench.disk.list_directory(directory) if entry[0].endswith(".log")]
    bench.disk.flip_bit(f"{directory}/{log_file}", 70 * 8)


async def test_a_shard_that_could_not_be_loaded_is_named_and_serves_when_its_log_can_be_read(
    bench: CoordinatorBench, caplog: pytest.LogCaptureFixture
) -> None:
    await commit_often(bench, "g")
    await bench.stop()
    damage(bench, "g")
    await bench.start()
    index = partition_of_key("g", PARTITIONS)
    async with asyncio.timeout(10):
        while not bench.groups.unserved():
            await asyncio.sleep(0.001)
    assert bench.groups.unserved() == [index]
    assert bench.groups.reason_not_ready() == f"groups are not served, those of {CONSUMER_OFFSETS_TOPIC}-{index}"
    damage(bench, "g")
    async with asyncio.timeout(10):
        while bench.groups.unserved():
            await asyncio.sleep(0.01)
    assert await eventually_committed(bench, "g") == 99
    assert bench.groups.reason_not_ready() == ""
    assert f"{CONSUMER_OFFSETS_TOPIC}-{index} is led here and its groups are not served" in caplog.text
    async with asyncio.timeout(10):
        while f"the groups of {CONSUMER_OFFSETS_TOPIC}-{index} are served again" not in caplog.text:
            await asyncio.sleep(0.01)


async def test_a_shard_is_tried_again_after_longer_and_longer_pauses(
    bench: CoordinatorBench, caplog: pytest.LogCaptureFixture
) -> None:
    await commit_often(bench, "g")
    await bench.stop()
    damage(bench, "g")
    await bench.start()
    tries: list[float] = []
    async with asyncio.timeout(20):
        while len(tries) < 3:
            await asyncio.sleep(0.1)
            tries = [record.created for record in caplog.records if "trying again" in record.getMessage()]
    assert tries[2] - tries[1] > 1.9  # two looks or more, where the one before had to wait for the next look only


async def test_a_log_whose_file_has_become_shorter_is_not_taken_for_all_there_is(bench: CoordinatorBench) -> None:
    assert await bench.commit("g", "t", 1) == 0
    directory = f"/logs/{CONSUMER_OFFSETS_TOPIC}-{partition_of_key('g', PARTITIONS)}"
    bench.disk.cut(f"{directory}/{0:020d}.log", 0)
    await change_partition(bench, "g", lambda record: replace(record, leader_epoch=LeaderEpoch(7)))
    async with asyncio.timeout(10):
        while not bench.groups.unserved():
            await asyncio.sleep(0.001)
    with pytest.raises(ApiError):
        await bench.committed("g", "t")


async def test_a_damaged_copy_of_several_is_given_up_when_its_groups_are_loaded(bench: CoordinatorBench) -> None:
    await commit_often(bench, "g")
    await bench.stop()
    damage(bench, "g")
    await bench.start()
    both = (bench.me, Member(BrokerId(2), Incarnation(99)))
    brokers = tuple(member.broker for member in both)
    await change_partition(
        bench, "g", lambda record: replace(record, replicas=brokers, isr=both, leader_epoch=LeaderEpoch(7))
    )
    given_up: list[Partition] = []
    bench.table.damage.on_damaged = lambda partition: not given_up.append(partition)  # type: ignore[func-returns-value]
    async with asyncio.timeout(10):
        while not given_up:
            await asyncio.sleep(0.001)
    assert given_up[0].name == (CONSUMER_OFFSETS_TOPIC, partition_of_key("g", PARTITIONS))
    assert bench.failures == []


async def test_a_log_that_a_reader_opened_is_taken_as_its_own_only_while_it_has_never_held_anything(
    bench: CoordinatorBench,
) -> None:
    assert await bench.committed("g", "t") == -1
    before = bench.groups.machines()
    for index in range(PARTITIONS):
        bench.table.get(CONSUMER_OFFSETS_TOPIC, index)
    assert await bench.commit("g", "t", 1) == 0
    assert bench.groups.machines() == before
    partition = bench.table.get(CONSUMER_OFFSETS_TOPIC, partition_of_key("h", PARTITIONS))
    assert partition.log.end_offset == 0
    batch = memoryview(bytearray(build_batch([(0, b"key", b"value", ())])))
    partition.append(batch, read_batch_header(batch), now_ms=1)
    log = PartitionShardLog(bench.table, CONSUMER_OFFSETS_TOPIC, partition_of_key("h", PARTITIONS), batch_bytes_max=1)
    log.partition = None
    assert log.closed


async def test_a_failed_flush_answers_those_who_wait_for_it(bench: CoordinatorBench) -> None:
    await bench.commit("g", "t", 5)
    bench.disk.fail_next_sync()
    assert await code_of(bench.commit("g", "t", 6)) is ErrorCode.NOT_COORDINATOR
    assert len(bench.failures) == 1


async def test_stopping_answers_those_who_are_parked_and_lets_commits_finish(bench: CoordinatorBench) -> None:
    waiting = asyncio.ensure_future(bench.join("g"))
    committing = asyncio.ensure_future(bench.commit("h", "t", 5))
    while not bench.groups.waiting_count:
        await asyncio.sleep(0)
    bench.groups.stop_parking()
    assert await code_of(waiting) is ErrorCode.NOT_COORDINATOR
    assert await committing == 0
    assert await code_of(bench.join("g")) is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("sizes", "pieces"),
    [
        ([], []),
        ([0], [[(0, 0, 0)]]),
        ([2, 1], [[(0, 0, 2), (1, 0, 1)]]),
        ([7], [[(0, 0, 3)], [(0, 3, 6)], [(0, 6, 7)]]),
        ([2, 2], [[(0, 0, 2), (1, 0, 1)], [(1, 1, 2)]]),
        ([0, 0, 0, 0], [[(0, 0, 0), (1, 0, 0), (2, 0, 0)], [(3, 0, 0)]]),
        ([3, 3], [[(0, 0, 3)], [(1, 0, 3)]]),
    ],
)
def test_long_lists_are_cut_into_pieces(sizes: list[int], pieces: list[list[tuple[int, int, int]]]) -> None:
    assert list(in_pieces([(number, [0] * size) for number, size in enumerate(sizes)], 3)) == pieces

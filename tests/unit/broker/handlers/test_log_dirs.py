"""What a broker of several says about the replicas in its log directory."""

from martlet.base.errors import ErrorCode, StorageFailure
from martlet.base.ids import TopicPartition
from martlet.broker.ground.request import RequestContext
from martlet.broker.handlers import alter_replica_log_dirs, describe_log_dirs
from martlet.replication.follower import FetchAnswer
from martlet.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from martlet.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from tests.unit.broker.replica_table_bench import LINK, ME, SECOND, THIRD, ReplicaTableBench, record, replica_table


async def lags(bench: ReplicaTableBench) -> dict[int, int]:
    """Lag by partition of `orders`."""
    response = await describe_log_dirs.handle(bench.services, DescribeLogDirsRequest(None), RequestContext(LINK, 5, ""))
    (directory,) = response.results
    return {one.partition_index: one.offset_lag for topic in directory.topics for one in topic.partitions}


async def kept(bench: ReplicaTableBench, *indexes: int) -> list[int]:
    """The answers to the wish to keep partitions of `orders` where they lie."""
    wish = AlterReplicaLogDir("/logs", [AlterReplicaLogDirTopic("orders", list(indexes))])
    request, context = AlterReplicaLogDirsRequest([wish]), RequestContext(LINK, 2, "")
    response = await alter_replica_log_dirs.handle(bench.services, request, context)
    return [one.error_code for topic in response.results for one in topic.partitions]


async def test_the_lag_of_a_copy_is_what_its_leader_has_committed_beyond_it() -> None:
    async with replica_table() as bench:
        bench.store(record(), record(leader=SECOND, index=1), record(in_sync=(SECOND,), replicas=(SECOND,), index=2))
        bench.produce(b"one")
        copy = bench.table.hosted("orders", 1)
        assert copy is not None
        assert copy.follower is not None
        assert await lags(bench) == {0: 0, 1: 0}, "what lies on other brokers only is not in this directory"
        copy.follower.step_for(
            FetchAnswer(high_watermark=7), copy.follower.next_fetch(copy.followed_log), copy.followed_log
        )
        assert await lags(bench) == {0: 0, 1: 7}


async def test_a_partition_that_lies_on_other_brokers_only_has_no_replica_to_keep_here() -> None:
    async with replica_table() as bench:
        elsewhere = record(leader=SECOND, in_sync=(SECOND, THIRD), replicas=(SECOND, THIRD), index=1)
        bench.store(record(in_sync=(ME,), replicas=(ME,)), elsewhere)
        assert await kept(bench, 0, 1) == [ErrorCode.NONE, ErrorCode.REPLICA_NOT_AVAILABLE]


async def test_a_replica_whose_log_cannot_be_opened_is_not_called_empty() -> None:
    async with replica_table() as bench:
        bench.store(record(), record(index=1))
        bench.logs.failures[TopicPartition("orders", 1)] = StorageFailure("the segment cannot be read")
        assert await lags(bench) == {0: 0}
        assert await kept(bench, 0, 1) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]

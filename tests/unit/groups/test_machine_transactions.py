"""Offsets in producers' transactions, as the groups machine takes, shows and removes them."""

from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import OfProducer
from martlet.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from martlet.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .group_bench import RETENTION_MS, GroupBench, caller

PRODUCER = OfProducer(7, 3)


@pytest.fixture
def bench() -> GroupBench:
    return GroupBench()


def stage(bench: GroupBench, offset: int = 9, *, partition: int = 0, topic: str = "orders", **words: Any) -> int:
    """The code of the one partition, or of the refusal."""
    group = words.pop("group", "g")
    request = TxnOffsetCommitRequest("app", group, *PRODUCER[:2], **words)
    request.topics = [TxnOffsetCommitRequestTopic(topic, [TxnOffsetCommitRequestPartition(partition, offset)])]
    try:
        answer = bench.context.call(lambda machine, now_ms: machine.txn_offset_commit(request, caller(3), now_ms))
    except ApiError as error:
        return int(error.code)
    return int(answer.topics[0].partitions[0].error_code)


def end(bench: GroupBench, is_commit: bool = True) -> None:
    bench.context.call(lambda machine, now_ms: machine.transaction_ended(PRODUCER, is_commit, 1, now_ms))


def fetched(bench: GroupBench, *, stable: bool) -> tuple[int, int]:
    """Error and offset of one partition."""
    asked = OffsetFetchRequestGroup("g", topics=[OffsetFetchRequestTopics("orders", partition_indexes=[0])])
    answer = bench.context.call(lambda machine, now_ms: machine.offset_fetch(asked, stable, caller(8), now_ms))
    partition = answer.topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_staged_offset_is_unstable_and_then_counts_or_not(bench: GroupBench, is_commit: bool) -> None:
    bench.commit(offset=5)
    assert stage(bench) == 0
    for _ in range(2):
        assert fetched(bench, stable=True) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert fetched(bench, stable=False) == (0, 5)
        bench.context.reload()
    end(bench, is_commit)
    for _ in range(2):
        assert fetched(bench, stable=True) == (0, 9 if is_commit else 5)
        bench.context.reload()


def test_a_client_that_names_no_member_needs_none(bench: GroupBench) -> None:
    assert stage(bench) == 0
    bench.stable()
    assert stage(bench) == 0
    bench.consumer_heartbeat("other")
    assert stage(bench, group="other") == 0


def test_a_member_is_checked_when_it_is_named(bench: GroupBench) -> None:
    joined = bench.stable()
    who: dict[str, Any] = {"member_id": joined.member_id, "generation_id": joined.generation_id}
    assert stage(bench, **who) == 0
    assert stage(bench, **(who | {"generation_id": 99})) == ErrorCode.ILLEGAL_GENERATION
    assert stage(bench, **(who | {"member_id": "other"})) == ErrorCode.UNKNOWN_MEMBER_ID
    assert stage(bench, **(who | {"group_instance_id": "i"})) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_does_not_stop_a_transaction(bench: GroupBench) -> None:
    joined = bench.join()
    assert stage(bench, member_id=joined.member_id, generation_id=joined.generation_id) == 0


def test_a_member_of_a_consumer_group_is_checked_by_its_epoch(bench: GroupBench) -> None:
    epoch = bench.consumer_heartbeat().member_epoch
    assert stage(bench, member_id="m", generation_id=epoch) == 0
    assert stage(bench, member_id="m", generation_id=epoch + 7) == ErrorCode.ILLEGAL_GENERATION
    assert stage(bench, member_id="other", generation_id=epoch) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_of_an_unknown_group_is_illegal_and_an_empty_name_refused(bench: GroupBench) -> None:
    assert stage(bench, generation_id=0, member_id="m") == ErrorCode.ILLEGAL_GENERATION
    assert stage(bench, group="") == ErrorCode.INVALID_GROUP_ID


def test_what_is_wrong_with_a_partition_stands_in_its_answer(bench: GroupBench) -> None:
    assert stage(bench, partition=99) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert stage(bench, topic="nothing") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert bench.context.log == []


def test_a_group_with_staged_offsets_only_is_listed_and_can_be_deleted(bench: GroupBench) -> None:
    stage(bench)
    assert bench.listed() == [("g", "", "Empty", "classic")]
    assert bench.delete() == 0
    end(bench)
    assert bench.listed() == []


def test_deleting_an_offset_or_its_topic_takes_what_is_staged(bench: GroupBench) -> None:
    stage(bench)
    assert bench.delete_offset() == 0
    end(bench)
    assert bench.fetch() == -1
    stage(bench)
    bench.topics_deleted("orders")
    end(bench)
    assert bench.listed() == []


def test_nothing_expires_that_a_transaction_holds(bench: GroupBench) -> None:
    bench.commit(offset=5)
    stage(bench)
    bench.context.advance(2 * RETENTION_MS)
    assert fetched(bench, stable=False) == (0, 5)
    end(bench, is_commit=False)
    bench.context.advance(2 * RETENTION_MS)
    assert fetched(bench, stable=False) == (0, -1)

"""In which partitions a share group may stand somewhere, and who may change that."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.groups.share.records import TopicPartitions
from martlet.groups.share.standing import (
    check_movable,
    forget_topics,
    is_deletable,
    know_partitions,
    known_partitions,
)
from tests.unit.groups.consumer.sim_topics import SimTopics
from tests.unit.groups.share.share_bench import ShareBench


def test_a_group_may_stand_where_its_members_were_assigned_something() -> None:
    bench = ShareBench()
    bench.join("ann")
    known = bench.context.call(lambda machine, now_ms: known_partitions(machine, "g"))
    assert [(entry.name, entry.partitions) for entry in known.values()] == [("orders", (0, 1))]


def test_only_a_group_without_members_is_moved_or_forgets() -> None:
    bench = ShareBench(SimTopics(orders=1, bills=1))
    bench.join("ann")
    bills = bench.topics.id_of("bills")
    more = [TopicPartitions(bills, "bills", (0,))]
    for ask in (
        lambda machine, now_ms: check_movable(machine, "g"),
        lambda machine, now_ms: know_partitions(machine, "g", more),
        lambda machine, now_ms: forget_topics(machine, "g", [bills]),
    ):
        with pytest.raises(ApiError) as refused:
            bench.context.call(ask)
        assert refused.value.code is ErrorCode.NON_EMPTY_GROUP
    assert not bench.context.call(lambda machine, now_ms: is_deletable(machine, "g"))
    bench.beat("ann", -1)
    assert bench.context.call(lambda machine, now_ms: is_deletable(machine, "g"))
    bench.context.call(lambda machine, now_ms: know_partitions(machine, "g", more))
    bench.context.reload()
    assert sorted(entry.name for entry in bench.group.known.values()) == ["bills", "orders"]
    bench.context.call(lambda machine, now_ms: forget_topics(machine, "g", [bills, bench.topics.id_of("orders")]))
    bench.context.reload()
    assert not bench.group.known


def test_what_is_known_already_writes_nothing() -> None:
    bench = ShareBench()
    bench.join("ann")
    bench.beat("ann", -1)
    length = len(bench.context.log)
    orders = TopicPartitions(bench.topics.id_of("orders"), "orders", (1,))
    bench.context.call(lambda machine, now_ms: know_partitions(machine, "g", [orders]))
    bench.context.call(lambda machine, now_ms: forget_topics(machine, "g", [TopicId(bytes(16))]))
    assert len(bench.context.log) == length


def test_a_group_that_is_not_there_is_not_found() -> None:
    bench = ShareBench()
    for ask in (known_partitions, check_movable):
        with pytest.raises(ApiError) as refused:
            ask(bench.machine, "nothing")
        assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert not bench.context.call(lambda machine, now_ms: is_deletable(machine, "nothing"))

"""Who says how far its log goes, and that an unclean election goes by it."""

import pytest

from martlet.base.ids import BrokerId, LeaderEpoch, Member
from martlet.cluster.controller_decisions import TopicRules, decide_requested_election
from martlet.cluster.log_ends import plan_reports, unreported
from martlet.cluster.records import LogEnd, PartitionRecord
from tests.unit.cluster.controlled_cluster import ControlledCluster


def _member(cluster: ControlledCluster, broker: int) -> Member:
    record = cluster.image.broker(BrokerId(broker))
    assert record is not None
    return Member(record.id, record.incarnation)


def _without_power(*replicas: int) -> ControlledCluster:
    """All replicas of t-0 lost power and are back; none has proof that it lost nothing."""
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c"})
    cluster.make_topic("t", [replicas], {"min.insync.replicas": "2"})
    for broker in replicas:
        cluster.stop(broker)
    cluster.settle()
    for broker in replicas:
        cluster.start(broker, same_logs=True)
    cluster.settle()
    return cluster


def _asked(cluster: ControlledCluster, broker: int) -> list[PartitionRecord]:
    return [record for _, record in unreported(cluster.image, cluster.states, _member(cluster, broker))]


def _report(cluster: ControlledCluster, broker: int, epoch: int, offset: int) -> None:
    (partition,) = _asked(cluster, broker)
    record = cluster.image.broker(BrokerId(broker))
    assert record is not None
    end = LogEnd(*_member(cluster, broker), LeaderEpoch(epoch), offset)
    assert cluster.offer(plan_reports([(partition, end)], record))


def _chosen(cluster: ControlledCluster) -> int | None:
    decision = decide_requested_election(
        cluster.image.topic("t"), cluster.partition(), cluster.states, TopicRules(2), unclean=True
    )
    assert decision.is_unclean
    return decision.after.leader


def test_every_replica_that_is_alive_is_asked_once_when_no_complete_one_is_left() -> None:
    cluster = _without_power(1, 2, 3)
    assert cluster.partition().leader is None
    assert _asked(cluster, 2) == [cluster.partition()]
    _report(cluster, 2, 0, 5)
    assert _asked(cluster, 2) == []
    assert _asked(cluster, 3) == [cluster.partition()]
    cluster.start(2, same_logs=True)
    assert _asked(cluster, 2) == [cluster.partition()], "another process may have another log"
    _report(cluster, 2, 0, 4)
    assert [end.offset for end in cluster.partition().log_ends] == [4]


def test_no_broker_is_asked_while_one_leads_or_may_be_elected_or_is_the_only_replica() -> None:
    cluster = ControlledCluster({1: "a", 2: "b", 3: "c"})
    cluster.make_topic("t", [(1, 2)], {"min.insync.replicas": "2"})
    assert _asked(cluster, 1) == []
    for broker in (1, 2):
        cluster.stop(broker)
    cluster.settle()
    cluster.start(2, clean=True)
    assert cluster.partition().leader is None
    assert _asked(cluster, 2) == [], "it is complete and will be elected"
    alone = _without_power(1)
    assert _asked(alone, 1) == []


def test_a_report_about_a_partition_that_has_changed_meanwhile_is_refused() -> None:
    cluster = _without_power(1, 2, 3)
    (partition,) = _asked(cluster, 2)
    _report(cluster, 3, 0, 1)
    end = LogEnd(*_member(cluster, 2), LeaderEpoch(0), 5)
    assert not cluster.offer(plan_reports([(partition, end)], cluster.states.alive[BrokerId(2)]))


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ({1: (0, 3), 2: (0, 9), 3: (0, 5)}, 2),
        ({1: (0, 90), 2: (1, 7), 3: (1, 8)}, 3),
        ({1: (0, 5), 2: (0, 5), 3: (-1, 0)}, 1),
    ],
    ids=["the longest", "the latest epoch first", "the first of equals"],
)
def test_an_unclean_election_takes_the_log_that_goes_furthest(ends: dict[int, tuple[int, int]], expected: int) -> None:
    cluster = _without_power(1, 2, 3)
    for broker, (epoch, offset) in ends.items():
        _report(cluster, broker, epoch, offset)
    assert _chosen(cluster) == expected


def test_as_long_as_one_replica_has_not_reported_log_ends_decide_nothing() -> None:
    cluster = _without_power(1, 2, 3)
    _report(cluster, 2, 0, 9)
    assert _chosen(cluster) == 1


def test_an_election_forgets_the_log_ends() -> None:
    cluster = _without_power(1, 2, 3)
    for broker in (1, 2, 3):
        _report(cluster, broker, 0, broker)
    decision = decide_requested_election(
        cluster.image.topic("t"), cluster.partition(), cluster.states, TopicRules(2), unclean=True
    )
    assert (decision.after.leader, decision.after.log_ends) == (3, ())

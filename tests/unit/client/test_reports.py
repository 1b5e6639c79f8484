"""What is counted about a cluster: what is a problem, what is not, and that internal topics are counted apart."""

from martlet.base.addresses import Address
from martlet.base.ids import TopicPartition
from martlet.client.cluster_admin import BrokerState, Move
from martlet.client.lag import GroupLag, PartitionLag
from martlet.client.metadata import PartitionInfo, TopicInfo
from martlet.client.reports import BrokerReport, ClusterReport, PartitionReport, TopicSummary, partition_reports

PLACE = TopicPartition("t", 0)


def info(leader: int = 1, replicas: tuple[int, ...] = (1, 2), in_sync: tuple[int, ...] = (1, 2)) -> PartitionInfo:
    return PartitionInfo(0, leader, 3, replicas, in_sync, ())


def test_a_partition_whose_replicas_are_all_in_sync_has_no_problem() -> None:
    assert PartitionReport(PLACE, info()).problem is None


def test_a_partition_without_a_leader_says_so_before_anything_else() -> None:
    report = PartitionReport(PLACE, info(leader=-1, in_sync=(1,)))
    assert (report.leader, report.problem, report.missing) == (None, "no leader", (2,))


def test_replicas_that_are_not_in_sync_are_named() -> None:
    assert PartitionReport(PLACE, info(replicas=(1, 2, 3), in_sync=(2,))).problem == "not in sync: 1,3"


def test_a_replica_that_a_move_is_only_just_making_is_no_problem() -> None:
    move = Move(PLACE, (1, 2, 3), adding=(3,), removing=(1,))
    report = PartitionReport(PLACE, info(replicas=(1, 2, 3), in_sync=(1, 2)), move)
    assert report.problem is None
    assert report.to_json()["moving_to"] == [2, 3]
    assert PartitionReport(PLACE, info(replicas=(1, 2, 3), in_sync=(1,)), move).problem == "not in sync: 2"


def test_counts_of_a_cluster_are_those_of_its_problems() -> None:
    problems = (
        PartitionReport(PLACE, info(leader=-1, in_sync=(1,))),
        PartitionReport(PLACE, info(leader=-1)),
        PartitionReport(PLACE, info(in_sync=(1,))),
    )
    broker = BrokerReport(BrokerState(1, Address("a", 1), None, True, False), leads=1, replicas=3, in_sync=3)
    report = ClusterReport("c", 1, (broker,), 2, 1, 8, 50, moving=0, below_minimum=1, problems=problems)
    found = report.to_json()
    assert (found["partitions_without_leader"], found["partitions_under_replicated"]) == (2, 2)
    assert (found["topics"], found["internal_topics"], found["partitions"]) == (2, 1, 8)
    assert found["brokers"][0]["address"] == "a:1"


def test_partitions_are_listed_in_the_order_of_their_topics() -> None:
    topics = [TopicInfo(name, bytes(16), False, {0: info(), 1: info()}) for name in "ab"]
    places = [str(report.partition) for report in partition_reports(topics)]
    assert places == ["a-0", "a-1", "b-0", "b-1"]
    assert TopicSummary(topics[0]).replicas == 2
    assert "messages" not in TopicSummary(topics[0]).to_json()
    assert TopicSummary(topics[0], 7).to_json()["messages"] == 7


def test_the_lag_of_a_group_is_the_sum_of_what_is_known() -> None:
    known = PartitionLag(PLACE, 3, 0, 10, 7, 1_500)
    unknown = PartitionLag(TopicPartition("t", 1), None, 0, 10, None, None)
    lag = GroupLag("g", "Stable", [known, unknown], {PLACE: "reader"})
    assert (lag.messages, lag.oldest_ms) == (7, 1_500)
    assert [each["reader"] for each in lag.to_json()["partitions"]] == ["reader", None]
    assert lag.to_json()["lag_seconds"] == 1.5
    nothing = GroupLag("g", "Empty", [unknown], {})
    assert (nothing.messages, nothing.oldest_ms) == (None, None)

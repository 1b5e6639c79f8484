"""What tools learn about consumer groups."""

from martlet.groups.consumer.description import state_name
from tests.unit.groups.consumer.bench import ConsumerBench
from tests.unit.groups.consumer.sim_topics import SimTopics


def test_the_states_of_a_group_follow_its_epochs() -> None:
    bench = ConsumerBench()
    bench.join("a")
    assert state_name(bench.group) == "Stable"
    bench.join("b")
    assert state_name(bench.group) == "Reconciling"
    bench.topics.grow("orders", 5)
    bench.topics_changed("orders")
    assert state_name(bench.group) == "Assigning"
    bench.context.advance(50_000)
    assert state_name(bench.group) == "Empty"


def test_a_description_has_what_members_own_and_shall_own() -> None:
    bench = ConsumerBench()
    bench.join("a")
    bench.join("b")
    described = bench.context.machine.describe(bench.group)
    assert (described.group_epoch, described.assignment_epoch, described.assignor_name) == (2, 2, "uniform")
    first = described.members[0]
    assert (first.member_id, first.member_epoch, first.member_type) == ("a", 1, 1)
    assert first.assignment.topic_partitions[0].partitions == [0, 1, 2, 3]
    assert first.target_assignment.topic_partitions[0].topic_name == "orders"
    assert first.target_assignment.topic_partitions[0].partitions == [0, 1]


def test_deleted_topics_are_left_out_of_descriptions() -> None:
    bench = ConsumerBench(SimTopics(orders=1, clicks=1))
    bench.join("a", ["orders", "clicks"])
    bench.topics.delete("orders")
    described = bench.context.machine.describe(bench.group)
    assert [topic.topic_name for topic in described.members[0].assignment.topic_partitions] == ["clicks"]

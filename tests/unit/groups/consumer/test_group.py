"""A group's state follows from its records, in any order in which a compacted log can have them."""

from itertools import permutations

from martlet.base.ids import TopicId
from martlet.groups.consumer.consumer_group import (
    AssignmentDue,
    Awaited,
    ClassicMemberAwaited,
    ConsumerGroup,
    GroupRecord,
    TopicIndex,
)
from martlet.groups.records import (
    ClassicProtocolStored,
    ConsumerGroupRemoved,
    ConsumerGroupStored,
    ConsumerMemberRemoved,
    ConsumerMemberStored,
    CurrentAssigned,
    CurrentRemoved,
    MemberState,
    RegexRemoved,
    RegexResolved,
    TargetAssigned,
    TargetEpochRemoved,
    TargetEpochStored,
    TargetRemoved,
)
from tests.unit.groups.consumer.bench import ConsumerBench

TOPIC = TopicId(b"t" * 16)
ZERO = frozenset({(TOPIC, 0)})


def group_of(*records: GroupRecord, index: TopicIndex | None = None) -> ConsumerGroup:
    group = ConsumerGroup("g", index)
    for record in records:
        group.replay(record)
    return group


def test_the_order_of_a_members_records_does_not_matter() -> None:
    records: list[GroupRecord] = [
        ConsumerMemberStored("g", "m", instance_id="i", topic_names=("t",), assignor="range"),
        TargetAssigned("g", "m", ZERO),
        CurrentAssigned("g", "m", 3, 2, MemberState.STABLE, ZERO),
        ConsumerGroupStored("g", 3, 77),
        TargetEpochStored("g", 3),
    ]
    for order in permutations(records):
        group = group_of(*order)
        assert (group.epoch, group.metadata_hash, group.target_epoch) == (3, 77, 3)
        assert group.owners == {(TOPIC, 0): "m"}
        assert group.target_of("m") == ZERO
        assert group.assignor_votes == {"range": 1}
        member = group.static_member("i")
        assert member is not None
        assert member.current.epoch == 3
        assert group.has_reconciled


def test_a_partition_has_an_owner_until_it_is_given_back() -> None:
    group = group_of(CurrentAssigned("g", "m", 1, 0, MemberState.UNREVOKED_PARTITIONS, frozenset(), ZERO))
    assert group.owners == {(TOPIC, 0): "m"}
    group.replay(CurrentAssigned("g", "m", 2, 1, MemberState.STABLE))
    assert group.owners == {}


def test_one_member_cannot_release_what_is_anothers() -> None:
    group = group_of(CurrentAssigned("g", "old", 1, 0, MemberState.STABLE, ZERO))
    group.replay(CurrentAssigned("g", "new", 2, 1, MemberState.STABLE, ZERO))
    group.replay(CurrentRemoved("g", "old"))
    assert group.owners == {(TOPIC, 0): "new"}


def test_topics_are_counted_by_who_asks_for_them() -> None:
    index = TopicIndex()
    group = group_of(
        ConsumerMemberStored("g", "a", topic_names=("one", "two")),
        ConsumerMemberStored("g", "b", topic_names=("one",), topic_regex="t.*"),
        RegexResolved("g", "t.*", ("two", "three"), 0),
        index=index,
    )
    assert group.topic_sources == {"one": 2, "two": 2, "three": 1}
    assert group.topics_of(group.members["b"].stored) == {"one", "two", "three"}
    group.replay(RegexRemoved("g", "t.*"))
    group.replay(ConsumerMemberRemoved("g", "a"))
    assert group.subscribed_topics() == {"one"}
    assert index.groups_of("one") == {"g"}
    assert index.groups_of("two") == frozenset()
    group.leave_index()
    assert index.groups_of("one") == frozenset()


def test_classic_members_and_their_protocols_are_counted() -> None:
    classic = ClassicProtocolStored(10_000, (("range", b""), ("sticky", b"")))
    group = group_of(ConsumerMemberStored("g", "m", classic=classic))
    assert (group.classic_count, group.classic_protocols) == (1, {"range": 1, "sticky": 1})
    group.replay(ClassicMemberAwaited("g", "m", Awaited.JOIN))
    assert group.members["m"].awaited == Awaited.JOIN
    group.replay(ConsumerMemberStored("g", "m"))
    assert (group.classic_count, group.classic_protocols) == (0, {})
    assert group.members["m"].awaited.value == "nothing"


def test_a_new_target_ends_the_wait_for_one() -> None:
    group = group_of(AssignmentDue("g"))
    due = [group.assignment_due]
    group.replay(TargetEpochStored("g", 4))
    due.append(group.assignment_due)
    assert due == [True, False]
    group.replay(TargetEpochRemoved("g"))
    assert group.target_epoch == 0


def test_tombstones_of_a_forgotten_group_bring_nothing_back() -> None:
    bench = ConsumerBench()
    machine = bench.context.machine
    for record in (
        CurrentRemoved("g", "m"),
        TargetRemoved("g", "m"),
        ConsumerMemberRemoved("g", "m"),
        RegexRemoved("g", "x"),
        TargetEpochRemoved("g"),
        ConsumerGroupRemoved("g"),
    ):
        machine.replay(record)
    assert machine.groups == {}


def test_a_removal_leaves_nothing_behind() -> None:
    bench = ConsumerBench()
    request_regex = bench.join("a")
    assert request_regex.member_epoch == 1
    machine = bench.context.machine
    for record in machine.removal(bench.group):
        machine.replay(record)  # type: ignore[arg-type]
    assert machine.groups == {}
    bench.context.call(lambda machine, now_ms: machine.topics_changed(["orders"], now_ms))
    assert machine.groups == {}

"""A classic group's state: drafts, votes, topics, and what a record brings back."""

import pytest

from martlet.base.errors import InvariantViolation
from martlet.groups.classic.classic_events import (
    GenerationBegun,
    MemberJoined,
    MemberRejoined,
    MembersRemoved,
    RebalancePrepared,
    StaticMemberReplaced,
)
from martlet.groups.classic.classic_group import TRANSITIONS, ClassicGroup, ClassicState
from martlet.groups.classic.member import Member, Protocols
from martlet.groups.records import ClassicGroupStored, ClassicMemberStored
from martlet.wire.consumer_protocol import Subscription, write_subscription


def member(name: str, protocols: Protocols = (("range", b"m"),), instance_id: str | None = None) -> Member:
    return Member(name, instance_id, "client", "/h", 1_000, 6_000, protocols)


def group_of(*members: Member, protocol_type: str = "consumer") -> ClassicGroup:
    group = ClassicGroup("g", 0)
    for one in members:
        group.replay(MemberJoined("g", protocol_type, one, 0))
    group.replay(RebalancePrepared("g"))
    return group


def begun(*members: Member, protocol_type: str = "consumer") -> ClassicGroup:
    group = group_of(*members, protocol_type=protocol_type)
    group.replay(GenerationBegun("g", 1, group.select_protocol(), members[0].member_id))
    return group


def subscribed(*topics: str) -> bytes:
    return write_subscription(Subscription(topics=topics))


def test_a_draft_changes_without_its_group_noticing() -> None:
    group = group_of(member("a"), member("b", instance_id="i"))
    before = repr(group)
    draft = group.draft()
    draft.replay(GenerationBegun("g", 1, "range", "a"))
    draft.replay(draft.stored(5, {"a": b"p0"}))
    draft.replay(StaticMemberReplaced("g", "b", member("b2", instance_id="i")))
    draft.replay(MembersRemoved("g", ("a",)))
    draft.replay(RebalancePrepared("g"))
    draft.replay(MemberRejoined("g", member("b2", (("sticky", b""),), "i")))
    assert repr(group) == before
    assert repr(draft) != before


def test_every_state_has_its_ways_out_and_nothing_else_is_allowed() -> None:
    assert TRANSITIONS.keys() == set(ClassicState)
    group = ClassicGroup("g", 0)
    with pytest.raises(InvariantViolation):
        group.replay(GenerationBegun("g", 1, "range", "a"))
    with pytest.raises(InvariantViolation):
        group.stored(0, {})
    with pytest.raises(InvariantViolation):
        group.stored_empty(0)


def test_a_generation_cannot_go_back() -> None:
    group = begun(member("a"))
    group.replay(RebalancePrepared("g"))
    with pytest.raises(InvariantViolation):
        group.replay(GenerationBegun("g", 1, "range", "a"))


def test_the_protocol_most_members_like_best_is_chosen_among_those_all_know() -> None:
    both, reverse = (("range", b""), ("sticky", b"")), (("sticky", b""), ("range", b""))
    assert group_of(member("a", both), member("b", reverse), member("c", reverse)).select_protocol() == "sticky"
    assert group_of(member("a", both), member("b", reverse)).select_protocol() == "range"
    three = (("new", b""), *both)
    assert group_of(member("a", three), member("b", three), member("c", reverse)).select_protocol() == "range"


def test_members_without_a_protocol_in_common_are_a_bug() -> None:
    with pytest.raises(InvariantViolation):
        group_of(member("a"), member("b", (("other", b""),))).select_protocol()


def test_the_topics_of_all_members_are_known_as_far_as_their_metadata_can_be_read() -> None:
    one, two = member("a", (("range", subscribed("t", "u")),)), member("b", (("range", subscribed("v")),))
    assert begun(one, two).subscribed_topics() == frozenset({"t", "u", "v"})
    assert begun(one, member("b")).subscribed_topics() is None
    assert begun(one, protocol_type="connect").subscribed_topics() is None
    group = begun(one)
    group.replay(RebalancePrepared("g"))
    group.replay(MembersRemoved("g", ("a",)))
    group.replay(group.stored_empty(9))
    assert group.subscribed_topics() == frozenset()


def test_a_record_keeps_the_protocols_of_live_members_and_brings_back_one_for_others() -> None:
    both = (("range", b"r"), ("sticky", b"s"))
    group = begun(member("a", both), member("b", both))
    record = group.stored(77, {"a": b"p0"})
    group.replay(record)
    assert [one.protocols for one in group.members.values()] == [both, both]
    assert group.assignments == {"a": b"p0", "b": b""}
    assert group.changed_at_ms == 77
    loaded = ClassicGroup("g", 0)
    loaded.replay(record)
    assert [one.protocols for one in loaded.members.values()] == [(("range", b"r"),)] * 2
    assert loaded.state is ClassicState.STABLE
    assert not loaded.unsynced


def test_a_record_whose_leader_is_no_member_gets_one_that_is() -> None:
    stored = ClassicMemberStored("a", None, "c", "/h", 1, 1, b"", b"")
    group = ClassicGroup("g", 0)
    group.replay(ClassicGroupStored("g", "consumer", 3, "range", "lost", 5, (stored,)))
    assert group.leader == "a"
    emptied = group.draft()
    emptied.replay(ClassicGroupStored("g", "consumer", 4, None, None, 6))
    assert emptied.leader is None
    assert emptied.is_empty


def test_a_static_member_that_owes_its_sync_still_owes_it_under_its_new_id() -> None:
    group = begun(member("a"), member("b", instance_id="i"))
    group.replay(StaticMemberReplaced("g", "b", member("b2", instance_id="i")))
    assert list(group.unsynced) == ["a", "b2"]


def test_the_next_in_line_leads_when_the_leader_goes() -> None:
    group = begun(member("a"), member("b"), member("c"))
    group.replay(MembersRemoved("g", ("a", "b")))
    assert group.leader == "c"
    group.replay(MembersRemoved("g", ("c",)))
    assert group.leader is None


def test_a_member_is_as_large_as_the_bytes_of_its_texts() -> None:
    plain, wide = member("m", instance_id="x" * 1_000), member("m", instance_id="\u20ac" * 1_000)
    assert wide.size_bytes - plain.size_bytes == 2_000
    named = member("m", (("\u20ac" * 1_000, b"m"),))
    assert named.size_bytes - member("m", (("x" * 1_000, b"m"),)).size_bytes == 2_000

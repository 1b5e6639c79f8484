"""The table of committed offsets."""

from martlet.groups.offsets.table import TopicsCleared, TopicsForgotten
from martlet.groups.records import OffsetCommitted, OffsetRemoved

from .offset_cases import table_of


def test_the_newest_commit_of_a_partition_counts() -> None:
    table = table_of(OffsetCommitted("g", "t", 0, 5), OffsetCommitted("g", "t", 0, 9, 3, "note", 1_000, 2_000))
    committed = table.of_topic("g", "t")[0]
    assert (committed.offset, committed.leader_epoch, committed.metadata) == (9, 3, "note")
    assert (committed.committed_at_ms, committed.expires_at_ms) == (1_000, 2_000)
    assert table.count == 1


def test_a_group_is_gone_with_its_last_offset() -> None:
    table = table_of(OffsetCommitted("g", "t", 0, 5), OffsetCommitted("g", "u", 1, 6))
    table.replay(OffsetRemoved("g", "t", 0))
    assert "g" in table
    assert set(table.of_group("g")) == {"u"}
    table.replay(OffsetRemoved("g", "u", 1))
    assert "g" not in table
    assert table.count == 0
    assert list(table.all()) == []


def test_removing_what_is_not_there_changes_nothing() -> None:
    table = table_of(OffsetCommitted("g", "t", 0, 5))
    for missing in (OffsetRemoved("h", "t", 0), OffsetRemoved("g", "u", 0), OffsetRemoved("g", "t", 1)):
        table.replay(missing)
    assert list(table.all()) == [("g", "t", 0, 5)]
    assert table.count == 1


def test_groups_do_not_see_each_other() -> None:
    table = table_of(OffsetCommitted("g", "t", 0, 5), OffsetCommitted("h", "t", 0, 7))
    assert {group: table.of_topic(group, "t")[0].offset for group in table.group_ids()} == {"g": 5, "h": 7}
    assert table.count_of_group("g") == 1
    assert table.of_group("other") == {}


def test_topics_to_forget_are_remembered_until_they_are_cleared() -> None:
    table = table_of()
    table.replay(TopicsForgotten(frozenset({"t", "u"}), 100))
    table.replay(TopicsCleared(frozenset({"t"})))
    assert table.forgotten_topics == {"u": 100}

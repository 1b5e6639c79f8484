"""Removing committed offsets: on request, with their group or topic, and when they are too old.

Every removal is bounded in bytes, because the tombstones of one result form one batch of the log; later results remove
what is left over.

The rules of expiry are Kafka's. An offset whose client chose a retention expires by that. Otherwise the broker's
retention counts: from the moment a classic group became empty, or from the commit for simple groups, for consumer
groups, and for topics that a live group no longer reads. An offset of a topic that the group subscribes to never
expires. While the subscription of a live group is not known, nothing of it expires, and neither does what an open
transaction holds. Any other removal takes what is staged in transactions too.

Proved by: tests/unit/groups/offsets/test_offset_rules.py, tests/properties/test_group_offsets.py
"""

from collections.abc import Callable, Collection, Iterator
from typing import NamedTuple

from martlet.base.errors import ErrorCode
from martlet.groups.offsets.table import CommittedOffset, OffsetTable
from martlet.groups.ports import TopicsView
from martlet.groups.records import OffsetRemoved
from martlet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

REMOVAL_BYTES_MAX = 4 * 1024 * 1024
"""Estimated bytes of the tombstones of one result."""

_TOMBSTONE_OVERHEAD_BYTES = 48


class TombstoneBudget:
    """Counts down how many more tombstones fit into a result."""

    def __init__(self, bytes_max: int = REMOVAL_BYTES_MAX) -> None:
        self._bytes_left = bytes_max

    def take(self, group_id: str, topic: str) -> bool:
        """Whether one more fits; it is counted if so. Four bytes a character, at most."""
        size = 4 * (len(group_id) + len(topic)) + _TOMBSTONE_OVERHEAD_BYTES
        if size > self._bytes_left:
            self._bytes_left = 0
            return False
        self._bytes_left -= size
        return True

    @property
    def is_spent(self) -> bool:
        return self._bytes_left <= 0


def delete_offsets(
    request: OffsetDeleteRequest,
    *,
    table: OffsetTable,
    topics: TopicsView,
    is_subscribed: Callable[[str], bool],
) -> tuple[OffsetDeleteResponse, list[OffsetRemoved]]:
    """Answers and tombstones; a partition without an offset counts as done."""
    response = OffsetDeleteResponse()
    removed: dict[tuple[str, int], OffsetRemoved] = {}
    budget = TombstoneBudget()
    for asked in request.topics:
        error = ErrorCode.NONE
        if topics.topic(asked.name) is None:
            error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif is_subscribed(asked.name):
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
        known = table.partitions_of_topic(request.group_id, asked.name)
        answer = OffsetDeleteResponseTopic(name=asked.name)
        response.topics.append(answer)
        for partition in asked.partitions:
            index = partition.partition_index
            outcome = error
            if error is ErrorCode.NONE and index in known and (asked.name, index) not in removed:
                if budget.take(request.group_id, asked.name):
                    removed[asked.name, index] = OffsetRemoved(request.group_id, asked.name, index)
                else:
                    outcome = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer.partitions.append(OffsetDeleteResponsePartition(index, outcome))
    return response, list(removed.values())


def offsets_of_group(table: OffsetTable, group_id: str, budget: TombstoneBudget) -> list[OffsetRemoved]:
    """Tombstones for the group's offsets, as many as the budget allows."""
    removed: list[OffsetRemoved] = []
    for topic in table.topics_of_group(group_id):
        for partition in table.partitions_of_topic(group_id, topic):
            if not budget.take(group_id, topic):
                return removed
            removed.append(OffsetRemoved(group_id, topic, partition))
    return removed


def offsets_of_topics(
    table: OffsetTable, topics: Collection[str], *, until_ms: int | None, budget: TombstoneBudget
) -> Iterator[OffsetRemoved]:
    """Tombstones for what all groups have committed in these topics up to this instant, as the budget allows.

    The instant matters when a topic of the same name is made before the removal is complete. Without one everything
    goes, whatever the clock said when it was committed.
    """
    for group_id in table.group_ids():
        for topic in topics:
            for partition, committed in table.partitions_of_topic(group_id, topic).items():
                if until_ms is not None and (committed is None or committed.committed_at_ms > until_ms):
                    continue
                if not budget.take(group_id, topic):
                    return
                yield OffsetRemoved(group_id, topic, partition)


class ExpiryRule(NamedTuple):
    """How the offsets of one group age; a group without a rule keeps everything."""

    is_subscribed: Callable[[str], bool]
    empty_since_ms: int | None = None
    """The retention counts from here; None: from each commit."""


class Expired(NamedTuple):
    """Tombstones for what is too old, and whether the group has no other offset."""

    records: list[OffsetRemoved]
    is_all: bool


def expired_offsets(
    table: OffsetTable, group_id: str, rule: ExpiryRule, *, retention_ms: int, now_ms: int, budget: TombstoneBudget
) -> Expired:
    """What of this group's offsets is to be removed now, as the budget allows."""
    records: list[OffsetRemoved] = []
    is_all = group_id not in table.pending
    for topic, committed in table.of_group(group_id).items():
        if rule.is_subscribed(topic):
            is_all = False
            continue
        for partition, offset in committed.items():
            is_held = table.pending.holds(group_id, topic, partition)
            if is_held or not _is_expired(offset, rule, retention_ms, now_ms):
                is_all = False
            elif budget.take(group_id, topic):
                records.append(OffsetRemoved(group_id, topic, partition))
            else:
                return Expired(records, False)
    return Expired(records, is_all)


def _is_expired(offset: CommittedOffset, rule: ExpiryRule, retention_ms: int, now_ms: int) -> bool:
    if offset.expires_at_ms >= 0:
        return now_ms >= offset.expires_at_ms
    since_ms = offset.committed_at_ms if rule.empty_since_ms is None else rule.empty_since_ms
    return now_ms - since_ms >= retention_ms

"""Removing offsets on request: of single partitions (OffsetDelete), of a whole group, of deleted topics.

Every removal is bounded in bytes, because the tombstones of one result form one batch of the log; what is left over is
removed by later results.
"""

from collections.abc import Callable, Collection, Iterator

from martlet.base.errors import ErrorCode
from martlet.groups.offsets.table import OffsetTable
from martlet.groups.records import OffsetRemoved
from martlet.groups.topics import TopicsView
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
        committed = table.of_topic(request.group_id, asked.name)
        answer = OffsetDeleteResponseTopic(name=asked.name)
        response.topics.append(answer)
        for partition in asked.partitions:
            index = partition.partition_index
            outcome = error
            if error is ErrorCode.NONE and index in committed and (asked.name, index) not in removed:
                if budget.take(request.group_id, asked.name):
                    removed[asked.name, index] = OffsetRemoved(request.group_id, asked.name, index)
                else:
                    outcome = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer.partitions.append(OffsetDeleteResponsePartition(index, outcome))
    return response, list(removed.values())


def offsets_of_group(table: OffsetTable, group_id: str, budget: TombstoneBudget) -> list[OffsetRemoved]:
    """Tombstones for the group's offsets, as many as the budget allows."""
    removed: list[OffsetRemoved] = []
    for topic, committed in table.of_group(group_id).items():
        for partition in committed:
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
        of_group = table.of_group(group_id)
        for topic in topics:
            for partition, committed in of_group.get(topic, {}).items():
                if until_ms is not None and committed.committed_at_ms > until_ms:
                    continue
                if not budget.take(group_id, topic):
                    return
                yield OffsetRemoved(group_id, topic, partition)

"""The sweep over all groups: offsets too old are removed, then empty groups without offsets.

How it works: the timer ("cleanup",) starts a sweep every ten minutes. A sweep goes through the groups by name and stops
when it has visited enough offsets or has made enough tombstones; the timer ("cleanup", GROUP) goes on from that group
a moment later. Offsets of deleted topics that did not fit into one result are removed first, by the timer
("cleanup", "", "topics"). So no single firing keeps the broker busy for long, however many groups there are.
"""

from bisect import bisect_left
from collections.abc import Sequence
from typing import TypeAlias

from martlet.coordinator.result import Result, SetTimer, TimerKey
from martlet.groups.classic.classic_group import ClassicGroup
from martlet.groups.classic.classic_protocol import ClassicProtocol
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.directory import Group, GroupDirectory, Simple
from martlet.groups.offsets.removal import TombstoneBudget, expired_offsets, offsets_of_topics
from martlet.groups.offsets.table import OffsetTable, TopicsCleared, TopicsForgotten
from martlet.groups.ports import GroupsOptions
from martlet.groups.share.share_group import ShareGroup
from martlet.groups.share.share_protocol import ShareProtocol

SWEEP: TimerKey = ("cleanup",)
FORGET_TOPICS: TimerKey = ("cleanup", "", "topics")

SWEEP_INTERVAL_MS = 600_000
NEXT_TURN_MS = 50
OFFSETS_PER_TURN_MAX = 10_000
TURN_BYTES_MAX = 256 * 1024
"""Tombstones of one turn: some thousand offsets of groups with usual names."""

Records: TypeAlias = Sequence[object]


class Cleanup:
    """Reads the state and says what is to go; owned by the groups machine."""

    def __init__(
        self,
        directory: GroupDirectory,
        classic: ClassicProtocol,
        consumer: ConsumerProtocol,
        share: ShareProtocol,
        offsets: OffsetTable,
        options: GroupsOptions,
    ) -> None:
        self._directory = directory
        self._classic = classic
        self._consumer = consumer
        self._share = share
        self._offsets = offsets
        self._retention_ms = options.offsets_retention_ms

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[object]:
        """One turn of a sweep, or of forgetting topics."""
        if key == FORGET_TOPICS:
            return self._forget_rest()
        return self._sweep("" if key == SWEEP else key[1], now_ms)

    def forget_topics(self, topics: frozenset[str], now_ms: int) -> Result[object]:
        """Remove what was committed in deleted topics; what does not fit into this result follows by timer."""
        budget = TombstoneBudget()
        records: list[object] = [*offsets_of_topics(self._offsets, topics, until_ms=None, budget=budget)]
        if not budget.is_spent:
            return Result(records=records)
        records.append(TopicsForgotten(topics, now_ms))
        return Result(records=records, timers=[SetTimer(FORGET_TOPICS, NEXT_TURN_MS)])

    def _forget_rest(self) -> Result[object]:
        budget = TombstoneBudget(TURN_BYTES_MAX)
        records: list[object] = []
        cleared = []
        for topic, deleted_at_ms in self._offsets.forgotten_topics.items():
            records.extend(offsets_of_topics(self._offsets, (topic,), until_ms=deleted_at_ms, budget=budget))
            if budget.is_spent:
                break
            cleared.append(topic)
        if cleared:
            records.append(TopicsCleared(frozenset(cleared)))
        return Result(records=records, timers=[SetTimer(FORGET_TOPICS, NEXT_TURN_MS)] if budget.is_spent else ())

    def _sweep(self, first_group: str, now_ms: int) -> Result[object]:
        group_ids = sorted(self._directory.ids())
        budget = TombstoneBudget(TURN_BYTES_MAX)
        records: list[object] = []
        visited = 0
        for group_id in group_ids[bisect_left(group_ids, first_group) :]:
            if visited < OFFSETS_PER_TURN_MAX:
                visited += 1 + self._offsets.count_of_group(group_id)
                records.extend(self._aged(group_id, budget, now_ms))
                if not budget.is_spent:
                    continue
            return Result(records=records, timers=[SetTimer(("cleanup", group_id), NEXT_TURN_MS)])
        return Result(records=records, timers=[SetTimer(SWEEP, SWEEP_INTERVAL_MS)])

    def _aged(self, group_id: str, budget: TombstoneBudget, now_ms: int) -> list[object]:
        """What of one group is to go: old offsets, and the group itself when nothing of it is left."""
        group = self._directory.find(group_id)
        rule = None if group is None else self._directory.expiry_rule(group)
        if group is None or isinstance(group, ShareGroup) or (rule is None and group_id in self._offsets):
            return []  # share groups stay until they are deleted: where they stand is not stored here
        records: list[object] = []
        if rule is not None:
            expired = expired_offsets(
                self._offsets, group_id, rule, retention_ms=self._retention_ms, now_ms=now_ms, budget=budget
            )
            records.extend(expired.records)
            if not expired.is_all:
                return records
        is_expected = isinstance(group, ClassicGroup) and group.pending  # a member is about to join
        return records if is_expected else [*records, *self.removal(group)]

    def removal(self, group: Group) -> Records:
        """Tombstones of a group, but for its offsets; none while it has members."""
        if isinstance(group, Simple) or not group.is_empty:
            return ()
        if isinstance(group, ClassicGroup):
            return self._classic.removal(group)
        return self._share.removal(group) if isinstance(group, ShareGroup) else self._consumer.removal(group)

"""Committed offsets against a dictionary: commits, fetches, deletions, expiry, deleted topics, restarts, compaction.

The model holds what was committed last for every partition and when. What has outlived its retention may be there or
not, until a sweep was due without a restart in between; everything else must be there exactly. No request may change
the machine except through the records it returns, and the log alone, compacted or not, gives the same table.
"""

from copy import deepcopy
from typing import Any, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Result
from martlet.groups.cleanup import SWEEP_INTERVAL_MS
from martlet.groups.machine import GroupsMachine
from martlet.wire.messages.offset_fetch import OffsetFetchRequestGroup
from tests.unit.groups.group_bench import RETENTION_MS, GroupBench

GROUPS = st.sampled_from(["", "a", "b", "ü" * 20])
TOPICS = ("clicks", "orders", "temp")
PARTITIONS = st.integers(0, 1)


class Committed(NamedTuple):
    offset: int
    metadata: str
    leader_epoch: int
    committed_at_ms: int
    retention_ms: int

    def is_overdue(self, now_ms: int) -> bool:
        retention_ms = RETENTION_MS if self.retention_ms < 0 else self.retention_ms
        return now_ms - self.committed_at_ms >= retention_ms


class CarefulBench(GroupBench):
    """Checks that a request by itself changes nothing, by looking before its records are replayed."""

    def __init__(self) -> None:
        super().__init__()
        self.topics.counts = dict.fromkeys(TOPICS, 2)
        plain_call = self.context.call

        def call(operation: Any) -> Any:
            def watched(machine: GroupsMachine, now_ms: int) -> Result[Any]:
                before = contents(machine)
                try:
                    return operation(machine, now_ms)  # type: ignore[no-any-return]
                finally:
                    assert contents(machine) == before, "a handler changed the state"

            return plain_call(watched)

        self.context.call = call  # type: ignore[method-assign]


def contents(machine: GroupsMachine) -> object:
    """What the machine knows of offsets, in a form that can be compared."""
    offsets = machine.offsets
    table = {
        (group, topic, partition): repr(committed)
        for group in offsets.group_ids()
        for topic, partitions in offsets.of_group(group).items()
        for partition, committed in partitions.items()
    }
    return deepcopy((table, offsets.count, offsets.forgotten_topics))


class OffsetsModel(RuleBasedStateMachine):
    """Simple groups only: what members add to the rules is proved by the tests of their protocols."""

    def __init__(self) -> None:
        super().__init__()
        self.bench = CarefulBench()
        self.model: dict[tuple[str, str, int], Committed] = {}

    @property
    def now_ms(self) -> int:
        return self.bench.context.now_ms

    @rule(
        group=GROUPS,
        topic=st.sampled_from(TOPICS),
        partition=st.integers(0, 2),
        offset=st.integers(-1, 1 << 62),
        metadata=st.sampled_from(["", "note", "é" * 4_096, "x" * 4_097]),
        epoch=st.integers(-1, 5),
        retention_ms=st.sampled_from([-1, -1, -1, 0, 60_000, 5 * RETENTION_MS]),
    )
    def commit(
        self, group: str, topic: str, partition: int, offset: int, metadata: str, epoch: int, retention_ms: int
    ) -> None:
        epoch = epoch if retention_ms < 0 else -1  # no version of the request has both
        words: dict[str, Any] = {"partition": partition, "offset": offset, "metadata": metadata, "epoch": epoch}
        code = self.bench.commit(group, topic=topic, retention_ms=retention_ms, **words)
        if topic not in self.bench.topics.counts or partition == 2:
            assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif len(metadata) > 4_096:
            assert code == ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            assert code == 0
            self.model[group, topic, partition] = Committed(offset, metadata, epoch, self.now_ms, retention_ms)

    @rule(group=GROUPS)
    def fetch_all(self, group: str) -> None:
        answer = self.bench.fetch_group(OffsetFetchRequestGroup(group, topics=None))
        found = {
            (group, topic.name, part.partition_index): (
                part.committed_offset,
                part.metadata,
                part.committed_leader_epoch,
            )
            for topic in answer.topics
            for part in topic.partitions
        }
        self.match(found, {key: known[:3] for key, known in self.model.items() if key[0] == group})

    @rule(group=GROUPS, topic=st.sampled_from(TOPICS), partition=PARTITIONS)
    def fetch_one(self, group: str, topic: str, partition: int) -> None:
        offset = self.bench.fetch(group, topic, partition)
        known = self.model.get((group, topic, partition))
        if known is None or (offset == -1 and known.is_overdue(self.now_ms)):
            assert offset == -1
        else:
            assert offset == known.offset

    @rule(group=GROUPS, topic=st.sampled_from(TOPICS), partition=PARTITIONS)
    def delete_offset(self, group: str, topic: str, partition: int) -> None:
        exists = any(key[0] == group for key in self.bench_keys())
        if not group or not exists:
            with pytest.raises(ApiError) as refusal:
                self.bench.delete_offset(group, topic, partition)
            assert refusal.value.code is (ErrorCode.GROUP_ID_NOT_FOUND if group else ErrorCode.INVALID_GROUP_ID)
            return
        code = self.bench.delete_offset(group, topic, partition)
        if topic in self.bench.topics.counts:
            assert code == 0
            self.model.pop((group, topic, partition), None)

    @rule(group=GROUPS)
    def delete_group(self, group: str) -> None:
        exists = any(key[0] == group for key in self.bench_keys())
        assert self.bench.delete(group) == (0 if exists else ErrorCode.GROUP_ID_NOT_FOUND)
        self.model = {key: known for key, known in self.model.items() if key[0] != group}

    @rule(topic=st.sampled_from(TOPICS))
    def delete_or_make_topic(self, topic: str) -> None:
        if topic in self.bench.topics.counts:
            self.bench.topics_deleted(topic)
            self.model = {key: known for key, known in self.model.items() if key[1] != topic}
        else:
            self.bench.topics.counts[topic] = 2

    @rule(ms=st.sampled_from([1, 60_000, RETENTION_MS // 2, RETENTION_MS]))
    def advance(self, ms: int) -> None:
        self.bench.context.advance(ms)
        self.forget_expired()

    @rule()
    def advance_past_a_sweep(self) -> None:
        due_before = self.now_ms
        self.bench.context.advance(SWEEP_INTERVAL_MS + 1_000)
        left = [key for key in self.bench_keys() if self.model[key].is_overdue(due_before)]
        assert left == [], "a sweep leaves nothing that was overdue before it"
        self.forget_expired()

    @rule(compacts=st.booleans())
    def restart(self, compacts: bool) -> None:
        before = self.bench_keys()
        if compacts:
            self.bench.context.compact()
        self.bench.context.reload()
        assert self.bench_keys() == before

    @invariant()
    def nothing_is_there_that_was_not_committed(self) -> None:
        keys = self.bench_keys()
        assert keys <= set(self.model)
        missing = {key for key in self.model if key not in keys}
        assert all(self.model[key].is_overdue(self.now_ms) for key in missing)
        assert self.bench.machine.offsets.count == len(keys)
        assert {group[0] for group in self.bench.listed()} == {key[0] for key in keys}

    def bench_keys(self) -> set[tuple[str, str, int]]:
        return {(group, topic, partition) for group, topic, partition, _ in self.bench.machine.committed_offsets()}

    def forget_expired(self) -> None:
        """What is gone because it was overdue does not come back."""
        keys = self.bench_keys()
        self.model = {
            key: known for key, known in self.model.items() if key in keys or not known.is_overdue(self.now_ms)
        }

    def match(self, found: dict[Any, Any], known: dict[Any, Any]) -> None:
        for key, value in found.items():
            assert known[key] == value
        assert all(self.model[key].is_overdue(self.now_ms) for key in known if key not in found)


TestOffsets = OffsetsModel.TestCase
TestOffsets.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

"""The stage on which the stories of offsets are played: a whole groups machine, with members who only join and leave.

What members and their protocols do is shown by other stories; here their records are left out of the output, and a
member is called by the name it was given when it joined.
"""

from collections.abc import Callable
from typing import Any

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Result
from martlet.groups.machine import GroupsMachine
from martlet.groups.offsets.table import OffsetRecord
from martlet.groups.ports import GroupsOptions
from martlet.groups.records import (
    ClassicGroupRemoved,
    ConsumerGroupRemoved,
    OffsetCommitted,
    OffsetRemoved,
)
from martlet.wire.messages.join_group import JoinGroupResponse
from martlet.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.machine_context import MachineContext
from tests.scenarios.runner import Command, short
from tests.unit.groups.group_bench import GroupBench, caller
from tests.unit.groups.offsets.offset_cases import commit_request

HOUR_MS = 3_600_000
SHOWN = (*OffsetRecord.__args__, ClassicGroupRemoved, ConsumerGroupRemoved)


class Stage:
    """One story's machine and verbs; the topics are `orders` with four partitions and `clicks` with one."""

    def __init__(self) -> None:
        self.bench = GroupBench(
            GroupsOptions(initial_rebalance_delay_ms=0, offsets_retention_ms=24 * HOUR_MS, offset_metadata_max=10)
        )
        self.classic: dict[str, JoinGroupResponse] = {}
        self.epochs: dict[str, int] = {}
        self.commands: dict[str, Command] = {
            "commit": self.commit,
            "fetch": self.fetch,
            "delete_offset": self.delete_offset,
            "delete_group": self.delete_group,
            "list": self.list_groups,
            "describe": self.describe,
            "classic_join": self.classic_join,
            "classic_leave": self.classic_leave,
            "consumer_join": self.consumer_join,
            "consumer_leave": self.consumer_leave,
            "delete_topic": self.delete_topic,
            "advance": self.advance,
            "reload": self.reload,
        }

    @property
    def context(self) -> MachineContext[GroupsMachine]:
        return self.bench.context

    # Offsets

    def commit(self, words: dict[str, str]) -> list[str]:
        """commit [group=g] [topic=orders] [partition=0] offset=5 [member=] [generation=] [metadata=] [version=8]."""
        member = words.get("member", "")
        known = self.classic.get(member)
        generation = known.generation_id if known else self.epochs.get(member, -1)
        request = commit_request(
            words.get("group", "g"),
            topic=words.get("topic", "orders"),
            partition=int(words.get("partition", 0)),
            offset=int(words["offset"]),
            metadata=words.get("metadata", ""),
            generation=int(words.get("generation", generation)),
            member_id=known.member_id if known else member,
            retention_ms=int(words.get("retention", -1)),
            epoch=int(words.get("epoch", -1)),
        )
        version = int(words.get("version", 9 if member in self.epochs else 8))
        return self._play(
            lambda machine, now_ms: machine.offset_commit(request, caller(version), now_ms),
            lambda answer: _codes(answer.topics),
        )

    def fetch(self, words: dict[str, str]) -> list[str]:
        """fetch [group=g] [topic=orders partitions=0,1] [member=NAME epoch=]: all topics when none is named."""
        topics = None
        if "topic" in words:
            indexes = [int(index) for index in words.get("partitions", "0").split(",")]
            topics = [OffsetFetchRequestTopics(words["topic"], partition_indexes=indexes)]
        asked = OffsetFetchRequestGroup(
            words.get("group", "g"), words.get("member"), int(words.get("epoch", -1)), topics
        )
        return self._play(
            lambda machine, now_ms: machine.offset_fetch(asked, True, caller(9), now_ms),
            lambda answer: (
                [
                    f"{topic.name} {part.partition_index}: {part.committed_offset}"
                    f" epoch={part.committed_leader_epoch} {part.metadata!r}"
                    for topic in answer.topics
                    for part in topic.partitions
                ]
                or ["nothing"]
            ),
        )

    def delete_offset(self, words: dict[str, str]) -> list[str]:
        """delete_offset [group=g] [topic=orders] [partition=0]."""
        return self._play_bench(
            lambda: self.bench.delete_offset(
                words.get("group", "g"), words.get("topic", "orders"), int(words.get("partition", 0))
            )
        )

    # Groups

    def delete_group(self, words: dict[str, str]) -> list[str]:
        """delete_group [group=g]."""
        return self._play_bench(lambda: self.bench.delete(words.get("group", "g")))

    def list_groups(self, words: dict[str, str]) -> list[str]:
        """list [states=a,b] [types=a,b]."""
        states, types = (tuple(filter(None, words.get(name, "").split(","))) for name in ("states", "types"))
        lines = [
            f"{name}: {state} {kind} {protocol!r}" for name, protocol, state, kind in self.bench.listed(states, types)
        ]
        self.context.take_records()
        return lines or ["nothing"]

    def describe(self, words: dict[str, str]) -> list[str]:
        """describe [group=g] [version=6]: with DescribeGroups, as tools of the classic protocol do."""
        group = self.bench.described(words.get("group", "g"), int(words.get("version", 6)))
        self.context.take_records()
        head = f"{group.group_state} {group.protocol_type!r} members={len(group.members)}"
        return [f"{head} {ErrorCode(group.error_code).name}"]

    def classic_join(self, words: dict[str, str]) -> list[str]:
        """classic_join NAME [group=g] [topics=orders,clicks] [type=consumer] [no_sync]."""
        name, group = next(iter(words)), words.get("group", "g")
        topics = words.get("topics", "orders").split(",")
        joined = self.bench.join(group, *topics, protocol_type=words.get("type", "consumer"))
        self.classic[name] = joined
        if "no_sync" not in words:
            self.bench.sync(joined, group)
        return [*self._records(), f"{name} is in generation {joined.generation_id}"]

    def classic_leave(self, words: dict[str, str]) -> list[str]:
        """classic_leave NAME [group=g]."""
        self.bench.leave(self.classic.pop(next(iter(words))), words.get("group", "g"))
        return self._records()

    def consumer_join(self, words: dict[str, str]) -> list[str]:
        """consumer_join NAME [group=g] [topics=orders]."""
        name, group = next(iter(words)), words.get("group", "g")
        answer = self.bench.consumer_heartbeat(group, name, 0, *words.get("topics", "orders").split(","))
        self.epochs[name] = answer.member_epoch
        return [*self._records(), f"{name} is in epoch {answer.member_epoch}"]

    def consumer_leave(self, words: dict[str, str]) -> list[str]:
        """consumer_leave NAME [group=g]."""
        name = next(iter(words))
        self.bench.consumer_heartbeat(words.get("group", "g"), name, -1)
        del self.epochs[name]
        return self._records()

    # The world

    def delete_topic(self, words: dict[str, str]) -> list[str]:
        """delete_topic NAME."""
        self.bench.topics_deleted(*words)
        return self._records()

    def advance(self, words: dict[str, str]) -> list[str]:
        """advance minutes=10 [alive=NAME]: who is alive goes on sending heartbeats."""
        for _ in range(int(words["minutes"]) * 12):
            self.context.advance(5_000)
            if words.get("alive") in self.classic:
                self.bench.heartbeat(self.classic[words["alive"]], words.get("group", "g"))
            elif "alive" in words:
                name = words["alive"]
                self.bench.consumer_heartbeat(words.get("group", "g"), name, self.epochs[name])
        return self._records()

    def reload(self, words: dict[str, str]) -> list[str]:
        """reload [compact]: the broker restarts, perhaps after the log was compacted."""
        if "compact" in words:
            self.context.compact()
        self.context.reload()
        return self._records()

    # Showing

    def _play(
        self, operation: Callable[[GroupsMachine, int], Result[Any]], show: Callable[[Any], list[str]]
    ) -> list[str]:
        try:
            lines = show(self.context.call(operation))
        except ApiError as error:
            lines = [f"error {error.code.name}"]
        return [*lines, *self._records()]

    def _play_bench(self, ask: Callable[[], int]) -> list[str]:
        try:
            lines = [ErrorCode(ask()).name]
        except ApiError as error:
            lines = [f"error {error.code.name}"]
        return [*lines, *self._records()]

    def _records(self) -> list[str]:
        return [_shown(record) for record in self.context.take_records() if isinstance(record, SHOWN)]


def _codes(topics: list[Any]) -> list[str]:
    return [ErrorCode(part.error_code).name for topic in topics for part in topic.partitions]


def _shown(record: object) -> str:
    match record:
        case OffsetCommitted():
            chosen = f" expires_at={record.expires_at_ms}" if record.expires_at_ms >= 0 else ""
            place = f"{record.group_id} {record.topic} {record.partition}"
            return f"stored {place}: {record.offset} epoch={record.leader_epoch} {record.metadata!r}{chosen}"
        case OffsetRemoved():
            return f"removed {record.group_id} {record.topic} {record.partition}"
        case ClassicGroupRemoved() | ConsumerGroupRemoved():
            return f"removed {type(record).__name__.removesuffix('Removed')} {record.group_id}"
        case _:
            return f"event {short(record)}"

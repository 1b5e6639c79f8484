"""The way in to migration: what the machine calls when a request and its group speak different protocols.

Rules: as everywhere, methods read and return a `Result`. The two protocols do not know each other; only this room knows
both. A change of kind is one result, so it happens whole or not at all.

Proved by: tests/unit/groups/migration, tests/scenarios/migration
"""

from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result
from martlet.groups.caller import Caller
from martlet.groups.classic.group import ClassicGroup
from martlet.groups.classic.protocol import ClassicProtocol
from martlet.groups.consumer.group import ConsumerGroup
from martlet.groups.consumer.protocol import ConsumerProtocol
from martlet.groups.migration.classic_members import ClassicMembers
from martlet.groups.migration.downgrade import Downgrading
from martlet.groups.migration.upgrade import Upgrading
from martlet.groups.options import GroupsOptions
from martlet.groups.topics import TopicsView
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest
from martlet.wire.messages.leave_group import LeaveGroupRequest
from martlet.wire.messages.sync_group import SyncGroupRequest


class Migration:
    """Joins the two protocols of one shard."""

    def __init__(
        self,
        options: GroupsOptions,
        topics: TopicsView,
        ids: IdSource,
        classic: ClassicProtocol,
        consumer: ConsumerProtocol,
    ) -> None:
        self._upgrading = Upgrading(options, topics, classic, consumer)
        downgrading = Downgrading(options, topics, classic, consumer)
        self._members = ClassicMembers(options, topics, ids, consumer, downgrading)
        consumer.downgrade = downgrading

    def upgrade(
        self, group: ClassicGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """A KIP-848 member joins a classic group that has members: the group becomes a consumer group."""
        return self._upgrading.upgrade(group, request, caller, now_ms)

    def join_group(
        self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        """A classic member joins a consumer group that has members, or joins it again."""
        return self._members.join_group(group, request, caller, now_ms)

    def sync_group(
        self, group: ConsumerGroup, request: SyncGroupRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        return self._members.sync_group(group, request, caller)

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Result[object]:
        return self._members.heartbeat(group, request)

    def leave_group(
        self, group: ConsumerGroup, request: LeaveGroupRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        return self._members.leave_group(group, request, caller, now_ms)

"""Both protocols and the way between them, without offsets: a machine for tests of consumer groups and of migration."""

from collections.abc import Collection
from typing import Any

from martlet.base.randomness import IdSource
from martlet.coordinator.result import Result, TimerKey
from martlet.groups.classic.classic_protocol import ClassicProtocol
from martlet.groups.consumer.consumer_group import CONSUMER_RECORDS
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.consumer.departure import no_such_group
from martlet.groups.migration.classic_members import ClassicMembers
from martlet.groups.migration.conversion import Conversion
from martlet.groups.ports import Caller, GroupsOptions, TopicsView
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from martlet.wire.messages.heartbeat import HeartbeatRequest
from martlet.wire.messages.join_group import JoinGroupRequest
from martlet.wire.messages.leave_group import LeaveGroupRequest
from martlet.wire.messages.sync_group import SyncGroupRequest

CLASSIC_TIMERS = ("rebalance", "sync", "pending")


class TwoProtocols:
    """Routes as the groups machine does."""

    def __init__(self, options: GroupsOptions, topics: TopicsView, ids: IdSource) -> None:
        self.classic = ClassicProtocol(options, ids)
        self.consumer = ConsumerProtocol(options, topics, ids)
        self.conversion = Conversion(options, topics, self.classic, self.consumer)
        self.classic_members = ClassicMembers(options, topics, ids, self.consumer, self.conversion)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object]:
        group = self.classic.groups.get(request.group_id)
        if group is None:
            return self.consumer.heartbeat(request, caller, now_ms)
        if request.member_epoch != 0:
            raise no_such_group(request)
        if not group.is_empty:
            return self.conversion.upgrade(group, request, caller, now_ms)
        joined = self.consumer.heartbeat(request, caller, now_ms)
        return Result(joined.response, [*self.classic.removal(group), *joined.records], joined.timers, joined.answers)

    def join_group(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Result[object]:
        group = self.consumer.groups.get(request.group_id)
        if group is None:
            return self.classic.join_group(request, caller, now_ms)
        if not group.is_empty:
            return self.classic_members.join_group(group, request, caller, now_ms)
        joined = self.classic.join_group(request, caller, now_ms)
        return Result(joined.response, [*self.consumer.removal(group), *joined.records], joined.timers, joined.answers)

    def sync_group(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Result[object]:
        group = self.consumer.groups.get(request.group_id)
        if group is None:
            return self.classic.sync_group(request, caller, now_ms)
        return self.classic_members.sync_group(group, request, caller, now_ms)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Result[object]:
        group = self.consumer.groups.get(request.group_id)
        if group is None:
            return self.classic.heartbeat(request, caller, now_ms)
        return self.classic_members.heartbeat(group, request, caller, now_ms)

    def leave_group(self, request: LeaveGroupRequest, caller: Caller, now_ms: int) -> Result[object]:
        group = self.consumer.groups.get(request.group_id)
        if group is None:
            return self.classic.leave_group(request, caller, now_ms)
        return self.classic_members.leave_group(group, request, caller, now_ms)

    def topics_changed(self, names: Collection[str], now_ms: int) -> Result[object]:
        return self.consumer.topics_changed(names, now_ms)

    def replay(self, record: Any) -> None:
        if isinstance(record, CONSUMER_RECORDS):
            self.consumer.replay(record)
        else:
            self.classic.replay(record)

    def on_loaded(self, now_ms: int) -> Result[object]:
        classic, consumer = self.classic.on_loaded(now_ms), self.consumer.on_loaded(now_ms)
        return Result(None, [*classic.records, *consumer.records], [*classic.timers, *consumer.timers])

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[object]:
        if key[0] in CLASSIC_TIMERS or (key[0] == "session" and key[1] not in self.consumer.groups):
            return self.classic.on_timer(key, now_ms)
        return self.consumer.on_timer(key, now_ms)

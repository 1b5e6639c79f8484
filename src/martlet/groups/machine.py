"""The groups machine: the way into groups and their offsets, for requests, timers, topic updates and the log.

Rules: this module routes by the kind of group and joins the rules of the parts: who may commit is said by the group's
protocol, what is stored by `offsets/`. It decides nothing about membership itself.

Invariants:
GRP-1 An id is in at most one of the classic, the consumer and the share groups: one result removes the group of one
kind and creates that of the other. Share groups turn into no other kind, and no other into one.
GRP-2 Handlers change nothing; `replay` alone does.
"""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar, get_args

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.invariant import invariant
from martlet.base.randomness import IdSource
from martlet.coordinator.result import OfProducer, Result, SetTimer, TimerKey
from martlet.groups.classic.classic_events import CLASSIC_EVENTS
from martlet.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from martlet.groups.classic.classic_protocol import ClassicProtocol
from martlet.groups.cleanup import SWEEP, SWEEP_INTERVAL_MS, Cleanup
from martlet.groups.consumer.consumer_group import CONSUMER_RECORDS, ConsumerGroup
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.consumer.departure import no_such_group
from martlet.groups.directory import GroupDirectory
from martlet.groups.migration.classic_members import ClassicMembers
from martlet.groups.migration.conversion import Conversion
from martlet.groups.offsets.commit import commit_offsets
from martlet.groups.offsets.fetch import fetch_offsets
from martlet.groups.offsets.removal import TombstoneBudget, delete_offsets, offsets_of_group
from martlet.groups.offsets.table import OffsetRecord, OffsetTable
from martlet.groups.offsets.transactional import producer_of, stage_offsets
from martlet.groups.ports import Caller, GroupsOptions, TopicsView
from martlet.groups.records import ClassicGroupRemoved, ClassicGroupStored, OffsetsDecided
from martlet.groups.share.records import ShareRecord
from martlet.groups.share.share_group import ShareGroup
from martlet.groups.share.share_protocol import ShareProtocol
from martlet.wire.messages import consumer_group_describe, describe_groups, share_group_describe
from martlet.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from martlet.wire.messages.delete_groups import DeletableGroupResult
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from martlet.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from martlet.wire.messages.list_groups import ListedGroup
from martlet.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from martlet.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from martlet.wire.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchResponseGroup
from martlet.wire.messages.share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from martlet.wire.messages.txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse

S = TypeVar("S")

_FIRST_VERSION_OF_MEMBER_EPOCHS = 9
_JOINING_EPOCH = 0

_OFFSET_RECORDS = frozenset(get_args(OffsetRecord))
_CLASSIC_RECORDS = frozenset((ClassicGroupStored, ClassicGroupRemoved, *CLASSIC_EVENTS))
_CONSUMER_RECORDS = frozenset(CONSUMER_RECORDS)
_SHARE_RECORDS = frozenset(get_args(ShareRecord))

_CLASSIC_TIMERS = frozenset(("rebalance", "sync", "pending"))


class GroupsMachine:
    """All groups of one partition of the offsets topic; hosted by the coordinator runtime."""

    def __init__(self, options: GroupsOptions, topics: TopicsView, ids: IdSource) -> None:
        self.classic = ClassicProtocol(options, ids)
        self.consumer = ConsumerProtocol(options, topics, ids)
        self.offsets = OffsetTable()
        self._options = options
        self._topics = topics
        self.share = ShareProtocol(options.share, topics)
        self._conversion = Conversion(options, topics, self.classic, self.consumer)
        self._classic_members = ClassicMembers(options, topics, ids, self.consumer, self._conversion)
        self._directory = GroupDirectory(self.classic, self.consumer, self.share, self.offsets, options)
        self._cleanup = Cleanup(self._directory, self.classic, self.consumer, self.share, self.offsets, options)

    # Membership

    def join_group(self, request: JoinGroupRequest, caller: Caller, now_ms: int) -> Result[object, JoinGroupResponse]:
        self._directory.check_group_id(request.group_id)
        group = self.consumer.groups.get(request.group_id)
        if request.group_id in self.share.groups:
            reason = f"{request.group_id!r} is a share group, which has no members of the classic protocol"
            raise ApiError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, reason)
        if group is None:
            return self.classic.join_group(request, caller, now_ms)
        if group.is_empty:
            return _after(self.consumer.removal(group), self.classic.join_group(request, caller, now_ms))
        return self._classic_members.join_group(group, request, caller, now_ms)

    def sync_group(self, request: SyncGroupRequest, caller: Caller, now_ms: int) -> Result[object, SyncGroupResponse]:
        self._directory.check_group_id(request.group_id)
        group = self.consumer.groups.get(request.group_id)
        if group is None or group.is_empty:
            return self.classic.sync_group(request, caller, now_ms)
        return self._classic_members.sync_group(group, request, caller, now_ms)

    def heartbeat(self, request: HeartbeatRequest, caller: Caller, now_ms: int) -> Result[object, HeartbeatResponse]:
        self._directory.check_group_id(request.group_id)
        group = self.consumer.groups.get(request.group_id)
        if group is None or group.is_empty:
            return self.classic.heartbeat(request, caller, now_ms)
        return self._classic_members.heartbeat(group, request, caller, now_ms)

    def leave_group(
        self, request: LeaveGroupRequest, caller: Caller, now_ms: int
    ) -> Result[object, LeaveGroupResponse]:
        self._directory.check_group_id(request.group_id)
        group = self.consumer.groups.get(request.group_id)
        if group is None or group.is_empty:
            return self.classic.leave_group(request, caller, now_ms)
        return self._classic_members.leave_group(group, request, caller, now_ms)

    def consumer_group_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object, ConsumerGroupHeartbeatResponse]:
        self._directory.check_group_id(request.group_id, may_be_empty=True)  # an empty one is the protocol's to refuse
        if request.group_id in self.share.groups:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"not a consumer group: {request.group_id!r}")
        group = self.classic.groups.get(request.group_id)
        if group is None:
            return self.consumer.heartbeat(request, caller, now_ms)
        if request.member_epoch != _JOINING_EPOCH:
            raise no_such_group(request)
        if group.is_empty:
            return _after(self.classic.removal(group), self.consumer.heartbeat(request, caller, now_ms))
        return self._conversion.upgrade(group, request, caller, now_ms)

    def share_group_heartbeat(
        self, request: ShareGroupHeartbeatRequest, caller: Caller, now_ms: int
    ) -> Result[object, ShareGroupHeartbeatResponse]:
        self._directory.check_group_id(request.group_id, may_be_empty=True)
        group = self._directory.find(request.group_id)
        if group is not None and not isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"not a share group: {request.group_id!r}")
        return self.share.heartbeat(request, caller, now_ms)

    # Offsets

    def offset_commit(
        self, request: OffsetCommitRequest, caller: Caller, now_ms: int
    ) -> Result[object, OffsetCommitResponse]:
        self._directory.check_group_id(request.group_id, may_be_empty=True)
        commit = commit_offsets(request, caller.version, topics=self._topics, options=self._options, now_ms=now_ms)
        if not commit.is_worth_asking:
            return Result(response=commit.response)
        timers = self._check_commit(request, caller.version)
        return Result(response=commit.response, records=commit.records, timers=timers)

    def _check_commit(self, request: OffsetCommitRequest, version: int) -> list[SetTimer]:
        """Ask the group whether this commit may be; what follows from it for the member's session."""
        group = self._directory.find(request.group_id)
        generation = request.generation_id_or_member_epoch
        if isinstance(group, ClassicGroup):
            self.classic.check_commit(
                group, member_id=request.member_id, generation=generation, instance_id=request.group_instance_id
            )
            return self.classic.commit_timers(group, request.member_id)
        if isinstance(group, ConsumerGroup):
            self.consumer.check_commit(group, member_id=request.member_id, epoch=generation, version=version)
            return []
        if isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {request.group_id!r} commits no offsets")
        if generation < 0:
            return []
        if group is None and version >= _FIRST_VERSION_OF_MEMBER_EPOCHS:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
        if group is None:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {request.group_id!r} has no generation {generation}")
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {request.group_id!r} has no members")

    def txn_offset_commit(
        self, request: TxnOffsetCommitRequest, caller: Caller, now_ms: int
    ) -> Result[object, TxnOffsetCommitResponse]:
        """Stage offsets in a producer's transaction, which has this shard's partition in it."""
        self._directory.check_group_id(request.group_id)
        response, staged = stage_offsets(request, topics=self._topics, options=self._options, now_ms=now_ms)
        if not staged:
            return Result(response)
        self._check_member_of_txn(request)
        return Result(response, staged, of_producer=producer_of(request))

    def _check_member_of_txn(self, request: TxnOffsetCommitRequest) -> None:
        """Ask the group about the member, if one is named; a rebalance does not stop a transaction."""
        generation, member_id, instance_id = request.generation_id, request.member_id, request.group_instance_id
        if generation < 0 and not member_id and instance_id is None:
            return
        group = self._directory.find(request.group_id)
        if isinstance(group, ClassicGroup):
            self.classic.check_txn_commit(group, member_id=member_id, generation=generation, instance_id=instance_id)
        elif isinstance(group, ConsumerGroup):
            self.consumer.check_txn_commit(group, member_id=member_id, epoch=generation)
        elif isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {request.group_id!r} commits no offsets")
        elif generation >= 0:
            raise ApiError(ErrorCode.ILLEGAL_GENERATION, f"group {request.group_id!r} has no generation {generation}")

    def transaction_ended(
        self, of: OfProducer, is_commit: bool, coordinator_epoch: int, now_ms: int
    ) -> Result[object, None]:
        """The marker of a producer's transaction: its offsets count from now on, or are gone."""
        decided = OffsetsDecided(of.producer_id, of.producer_epoch, is_commit, coordinator_epoch)
        return Result(None, [decided], of_producer=OfProducer(of.producer_id, of.producer_epoch, is_control=True))

    def offset_fetch(
        self, group: OffsetFetchRequestGroup, require_stable: bool, caller: Caller, now_ms: int
    ) -> Result[object, OffsetFetchResponseGroup]:
        self._directory.check_group_id(group.group_id, may_be_empty=True)
        consumer_group = self.consumer.groups.get(group.group_id)
        if consumer_group is not None:
            self.consumer.check_fetch(consumer_group, member_id=group.member_id, epoch=group.member_epoch)
        return Result(
            fetch_offsets(group, caller.version, require_stable=require_stable, table=self.offsets, topics=self._topics)
        )

    def offset_delete(
        self, request: OffsetDeleteRequest, caller: Caller, now_ms: int
    ) -> Result[object, OffsetDeleteResponse]:
        self._directory.check_group_id(request.group_id)
        group = self._directory.existing(request.group_id)
        if isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"share group {request.group_id!r} commits no offsets")
        is_other_type = isinstance(group, ClassicGroup) and group.protocol_type != CONSUMER_PROTOCOL_TYPE
        if is_other_type and not group.is_empty:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {request.group_id!r} has members")
        response, records = delete_offsets(
            request,
            table=self.offsets,
            topics=self._topics,
            is_subscribed=lambda topic: self._directory.is_subscribed(group, topic),
        )
        return Result(response, records)

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]:
        """Group, topic, partition and offset of everything committed."""
        return self.offsets.all()

    def topic_names(self) -> set[str]:
        """Topics in which something is committed."""
        return self.offsets.topic_names()

    # Groups as a whole

    def describe_group(
        self, group_id: str, caller: Caller, now_ms: int
    ) -> Result[object, describe_groups.DescribedGroup]:
        return Result(self._directory.described(group_id, caller.version))

    def describe_consumer_group(
        self, group_id: str, caller: Caller, now_ms: int
    ) -> Result[object, consumer_group_describe.DescribedGroup]:
        self._directory.check_group_id(group_id)
        return Result(self._directory.described_consumer_group(group_id))

    def describe_share_group(
        self, group_id: str, caller: Caller, now_ms: int
    ) -> Result[object, share_group_describe.DescribedGroup]:
        self._directory.check_group_id(group_id)
        return Result(self._directory.described_share_group(group_id))

    def list_groups(
        self, states: Collection[str], types: Collection[str], now_ms: int
    ) -> Result[object, list[ListedGroup]]:
        return Result(self._directory.listed(states, types))

    def delete_group(self, group_id: str, now_ms: int) -> Result[object, DeletableGroupResult]:
        """Forget an empty group and its offsets.

        A group with more offsets than fit into one result loses as many as fit, and the error makes the caller repeat.
        """
        group = self._directory.find(group_id)
        if group is None:
            return Result(DeletableGroupResult(group_id, ErrorCode.GROUP_ID_NOT_FOUND))
        if not group.is_empty:
            return Result(DeletableGroupResult(group_id, ErrorCode.NON_EMPTY_GROUP))
        budget = TombstoneBudget()
        removed = offsets_of_group(self.offsets, group_id, budget)
        if budget.is_spent:
            return Result(DeletableGroupResult(group_id, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), removed)
        return Result(DeletableGroupResult(group_id), [*removed, *self._cleanup.removal(group)])

    def statistics(self) -> dict[tuple[str, str], int]:
        """How many groups there are by type ("classic", "consumer", "share") and state."""
        return self._directory.statistics()

    def member_counts(self) -> Iterator[tuple[str, int]]:
        """Every group that has or had members, with their number."""
        return self._directory.member_counts()

    # Topic updates, time and the log

    def topics_changed(self, changed: Collection[str], deleted: Collection[str], now_ms: int) -> Result[object]:
        """Topics were created or have grown (`changed`), or are gone (`deleted`) and their offsets with them."""
        forgotten: Result[object] = Result()
        if deleted:
            forgotten = self._cleanup.forget_topics(frozenset(deleted), now_ms)
        names = {*changed, *deleted}
        return _joined(forgotten, self.consumer.topics_changed(names, now_ms), self.share.topics_changed(names, now_ms))

    def on_loaded(self, now_ms: int) -> Result[object]:
        cleanup: Result[object] = Result(timers=[SetTimer(SWEEP, SWEEP_INTERVAL_MS)])
        parts = (self.classic, self.consumer, self.share)
        return _joined(*(part.on_loaded(now_ms) for part in parts), cleanup)

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[object]:
        if key[0] == "cleanup":
            return self._cleanup.on_timer(key, now_ms)
        if key[1] in self.share.groups:
            return self.share.on_timer(key, now_ms)
        if key[0] in _CLASSIC_TIMERS or (key[0] == "session" and key[1] not in self.consumer.groups):
            return self.classic.on_timer(key, now_ms)
        return self.consumer.on_timer(key, now_ms)

    def live_records(self) -> Iterator[Sequence[object]]:
        """Everything that the log says of groups and offsets, for a snapshot."""
        yield from self.classic.live_records()
        yield from self.consumer.live_records()
        yield from self.share.live_records()
        yield from self.offsets.live_records()

    def replay(self, record: object) -> None:
        kind = type(record)
        if kind in _OFFSET_RECORDS:
            self.offsets.replay(record)  # type: ignore[arg-type]  # the sets hold what each part takes
        elif kind in _CLASSIC_RECORDS:
            self.classic.replay(record)  # type: ignore[arg-type]
        elif kind in _SHARE_RECORDS:
            self.share.replay(record)  # type: ignore[arg-type]
        else:
            invariant(kind in _CONSUMER_RECORDS, "a record that no part of the groups machine knows")
            self.consumer.replay(record)  # type: ignore[arg-type]


def _after(first: Collection[object], then: Result[object, S]) -> Result[object, S]:
    """The same result with these records before its own."""
    return replace(then, records=[*first, *then.records])


def _joined(*results: Result[object]) -> Result[object]:
    """One result of several that have no caller."""
    return Result(
        None,
        [record for result in results for record in result.records],
        [timer for result in results for timer in result.timers],
        [answer for result in results for answer in result.answers],
    )

"""Groups and their offsets: which groups there are, who is in them, what they have committed, and changes to that.

Every request goes to the group's coordinator, which is found again whenever an answer says that it was the wrong broker
or is not ready. Everything here may be sent twice without harm (a commit of the same offsets, a removal), so a request
whose answer was lost is repeated. Being a member of a group is for `consumer`.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode, error_code
from martlet.base.ids import TopicPartition
from martlet.client.answers import check, only
from martlet.client.apis import (
    CONSUMER_GROUP_DESCRIBE,
    DELETE_GROUPS,
    DESCRIBE_GROUPS,
    LIST_GROUPS,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
)
from martlet.client.cluster import Cluster
from martlet.client.connection import Connection
from martlet.client.coordinators import Coordinated, Coordinators
from martlet.client.errors import GroupMissing
from martlet.client.group_members import (
    GroupDescription,
    MemberIdentity,
    described_classic_group,
    described_consumer_group,
)
from martlet.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from martlet.wire.messages.delete_groups import DeleteGroupsRequest
from martlet.wire.messages.describe_groups import DescribeGroupsRequest
from martlet.wire.messages.list_groups import ListGroupsRequest
from martlet.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from martlet.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)


class GroupListing(NamedTuple):
    """One group as the list of its coordinator has it; state and type are empty where an old broker does not say."""

    group_id: str
    type: str
    state: str
    protocol_type: str
    coordinator: int


class CommittedOffset(NamedTuple):
    """The next offset the group wants to read in a partition, and what it has noted with it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class Groups:
    """Stateless but for the coordinators it has found; owns nothing that needs closing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._coordinators = Coordinators(cluster, Coordinated.GROUP)

    async def listings(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """The groups of every broker, sorted by name; of these states and types, if any are given."""

        async def attempt() -> list[list[GroupListing]]:
            await self._cluster.refresh(())
            brokers = sorted(self._cluster.metadata.brokers)
            return list(await asyncio.gather(*(self._list_at(broker_id, states, types) for broker_id in brokers)))

        # While a coordinator moves, two brokers may both claim a group.
        found = {listing.group_id: listing for listings in await self._cluster.retry(attempt) for listing in listings}
        return [found[group_id] for group_id in sorted(found)]

    async def _list_at(self, broker_id: int, states: Collection[str], types: Collection[str]) -> "list[GroupListing]":
        connection = await self._cluster.connection(broker_id)
        request = ListGroupsRequest(states_filter=[*states], types_filter=[*types])
        response = await connection.call(LIST_GROUPS, request)
        check(response.error_code, None, f"the groups of broker {broker_id} were not listed")
        # Brokers that know no filter send everything.
        wanted_states, wanted_types = _lower(states), _lower(types)
        return [
            GroupListing(group.group_id, group.group_type, group.group_state, group.protocol_type, broker_id)
            for group in response.groups
            if (not wanted_states or group.group_state.lower() in wanted_states)
            and (not wanted_types or group.group_type.lower() in wanted_types)
        ]

    async def describe(self, group_id: str) -> GroupDescription:
        """State and members of a group of either kind; ApiError GROUP_ID_NOT_FOUND when there is none."""

        async def ask(connection: Connection) -> GroupDescription:
            found = None
            if CONSUMER_GROUP_DESCRIBE.key in connection.versions:
                found = await _describe_consumer_group(connection, group_id)
            found = found or await _describe_classic_group(connection, group_id)
            return found._replace(coordinator=self._coordinators.known(group_id))

        return await self._coordinators.call(group_id, ask)

    async def committed(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        member: MemberIdentity | None = None,
    ) -> dict[TopicPartition, CommittedOffset]:
        """What the group has committed, of these partitions or of all; partitions without a commit are left out.

        A group that does not exist has committed nothing. A member waits for offsets that a transaction may change.
        """
        wanted = None if partitions is None else [*partitions]

        async def ask(connection: Connection) -> dict[TopicPartition, CommittedOffset]:
            response = await connection.call(OFFSET_FETCH, _offset_fetch_request(group_id, wanted, member))
            return _committed_offsets(response, group_id)

        return await self._coordinators.call(group_id, ask)

    async def commit(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, member: MemberIdentity | None = None
    ) -> None:
        """Commit as a member, or from outside; the latter is refused (UNKNOWN_MEMBER_ID) while there are members."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = defaultdict(list)
        for partition, offset in offsets.items():
            by_topic[partition.topic].append(
                OffsetCommitRequestPartition(
                    partition_index=partition.partition, committed_offset=offset, committed_metadata=""
                )
            )
        topics = [OffsetCommitRequestTopic(name=name, partitions=entries) for name, entries in by_topic.items()]
        request = OffsetCommitRequest(group_id=group_id, topics=topics)
        if member is not None:
            request.generation_id_or_member_epoch = member.epoch
            request.member_id, request.group_instance_id = member.member_id, member.instance_id

        async def ask(connection: Connection) -> None:
            response = await connection.call(OFFSET_COMMIT, request)
            unanswered = set(offsets)
            for topic in response.topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.name, entry.partition_index)
                    check(entry.error_code, None, f"group {group_id!r}: {partition} was not committed")
                    unanswered.discard(partition)
            if unanswered:
                names = ", ".join(map(str, sorted(unanswered)))
                raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"the broker does not say whether {names} was committed")

        await self._coordinators.call(group_id, ask)

    async def delete(self, group_id: str) -> None:
        """Forget a group without members and all it has committed."""

        async def ask(connection: Connection) -> None:
            response = await connection.call(DELETE_GROUPS, DeleteGroupsRequest(groups_names=[group_id]))
            number = only(response.results).error_code
            _check_exists(number, group_id)
            check(number, None, f"group {group_id!r} was not deleted")

        await self._coordinators.call(group_id, ask)

    async def delete_offsets(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Forget what the group has committed for these partitions; refused for topics its members read."""
        by_topic: dict[str, list[OffsetDeleteRequestPartition]] = defaultdict(list)
        for partition in partitions:
            by_topic[partition.topic].append(OffsetDeleteRequestPartition(partition_index=partition.partition))
        topics = [OffsetDeleteRequestTopic(name=name, partitions=entries) for name, entries in by_topic.items()]

        async def ask(connection: Connection) -> None:
            response = await connection.call(OFFSET_DELETE, OffsetDeleteRequest(group_id=group_id, topics=topics))
            _check_exists(response.error_code, group_id)
            check(response.error_code, None, f"no offset of group {group_id!r} was deleted")
            for topic in response.topics:
                for entry in topic.partitions:
                    partition = TopicPartition(topic.name, entry.partition_index)
                    check(entry.error_code, None, f"the offset of group {group_id!r} in {partition} was not deleted")

        await self._coordinators.call(group_id, ask)

    def forget_coordinator(self, group_id: str) -> None:
        """Find it again before the next request."""
        self._coordinators.forget(group_id)

    async def coordinator(self, group_id: str) -> Connection:
        """A connection to the broker that coordinates the group."""
        return await self._coordinators.connection(group_id)


_NO_CONSUMER_GROUP: Final = frozenset(
    # The group without a name, under which old clients may commit, is a classic one.
    {ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.INVALID_GROUP_ID, ErrorCode.UNSUPPORTED_VERSION}
)


async def _describe_consumer_group(connection: Connection, group_id: str) -> GroupDescription | None:
    """None when it is no consumer group, or the broker serves none."""
    request = ConsumerGroupDescribeRequest(group_ids=[group_id])
    group = only((await connection.call(CONSUMER_GROUP_DESCRIBE, request)).groups)
    if error_code(group.error_code) in _NO_CONSUMER_GROUP:
        return None
    check(group.error_code, group.error_message, f"group {group_id!r} was not described", named=group_id)
    return described_consumer_group(group)


async def _describe_classic_group(connection: Connection, group_id: str) -> GroupDescription:
    group = only((await connection.call(DESCRIBE_GROUPS, DescribeGroupsRequest(groups=[group_id]))).groups)
    # Before version 6 a group that does not exist is described as a dead one.
    _check_exists(group.error_code or (ErrorCode.GROUP_ID_NOT_FOUND if group.group_state == "Dead" else 0), group_id)
    check(group.error_code, group.error_message, f"group {group_id!r} was not described", named=group_id)
    return described_classic_group(group)


def _check_exists(number: int, group_id: str) -> None:
    if error_code(number) == ErrorCode.GROUP_ID_NOT_FOUND:
        raise GroupMissing(group_id)


def _offset_fetch_request(
    group_id: str, partitions: Iterable[TopicPartition] | None, member: MemberIdentity | None
) -> OffsetFetchRequest:
    """One group, in the fields of the old versions and of the new ones; the version picks."""
    group = OffsetFetchRequestGroup(group_id=group_id, topics=None)
    if member is not None:
        group.member_id, group.member_epoch = member.member_id, member.epoch
    request = OffsetFetchRequest(group_id=group_id, topics=None, groups=[group], require_stable=member is not None)
    if partitions is None:
        return request
    by_topic: dict[str, list[int]] = defaultdict(list)
    for partition in partitions:
        by_topic[partition.topic].append(partition.partition)
    request.topics = [OffsetFetchRequestTopic(name=name, partition_indexes=some) for name, some in by_topic.items()]
    group.topics = [OffsetFetchRequestTopics(name=name, partition_indexes=some) for name, some in by_topic.items()]
    return request


def _committed_offsets(response: OffsetFetchResponse, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    answer = only(response.groups) if response.groups else response
    check(answer.error_code, None, f"the offsets of group {group_id!r} were not read")
    committed = {}
    for topic in answer.topics:
        for entry in topic.partitions:
            partition = TopicPartition(topic.name, entry.partition_index)
            check(entry.error_code, None, f"the offset of group {group_id!r} in {partition} was not read")
            if entry.committed_offset >= 0:
                committed[partition] = CommittedOffset(
                    entry.committed_offset, entry.committed_leader_epoch, entry.metadata or ""
                )
    return dict(sorted(committed.items()))


def _lower(words: Iterable[str]) -> frozenset[str]:
    return frozenset(word.lower() for word in words)

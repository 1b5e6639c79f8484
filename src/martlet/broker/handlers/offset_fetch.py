"""OffsetFetch 1–10: how far groups have committed.

- The machine knows the form of v8 only; older requests are turned into it, and its answers back.
- What is wrong with the group: v1 has no place for it, so it stands in each partition asked for (an empty answer would
  mean "nothing committed" and send the client to its reset policy); v2–7 for the whole answer; v8+ for each group.
- No topics (null, v2+) asks for all of them. In v1 an empty list is an empty list.
- A partition named several times is answered once, and so is a group (the repeats get INVALID_REQUEST).
- More than 2,000 partitions of one group are answered in parts.
"""

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Final

from martlet.base.errors import ApiError
from martlet.broker.coordinators.group_requests import caller_of, in_pieces
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.turns import Repeats, in_turns
from martlet.coordinator.result import Result
from martlet.groups.ports import Caller
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

if TYPE_CHECKING:
    from martlet.groups.machine import GroupsMachine

KEY: Final = ApiKey.OFFSET_FETCH
VERSIONS: Final = (1, 10)
REQUEST: Final = OffsetFetchRequest

_FIRST_VERSION_WITH_ERROR: Final = 2
_FIRST_VERSION_OF_GROUPS: Final = 8
_NOTHING_COMMITTED: Final = -1


async def handle(broker: BrokerServices, request: OffsetFetchRequest, context: RequestContext) -> OffsetFetchResponse:
    """Answer for one group, or several."""
    caller = caller_of(context)
    if context.version < _FIRST_VERSION_OF_GROUPS:
        return await _fetch_one(broker, request, caller)
    repeats = Repeats(group.group_id for group in request.groups)
    groups = []
    async for group in in_turns(request.groups):
        try:
            repeats.check(group.group_id)
            groups.append(await _fetch(broker, group, request.require_stable, caller))
        except ApiError as error:
            groups.append(OffsetFetchResponseGroup(group.group_id, error_code=error.code))
    return OffsetFetchResponse(groups=groups)


async def _fetch_one(broker: BrokerServices, request: OffsetFetchRequest, caller: Caller) -> OffsetFetchResponse:
    """The form of v1–7."""
    topics = None
    if request.topics is not None:
        topics = [OffsetFetchRequestTopics(old.name, partition_indexes=old.partition_indexes) for old in request.topics]
    group = OffsetFetchRequestGroup(request.group_id, topics=topics)
    try:
        answer = await _fetch(broker, group, request.require_stable, caller)
    except ApiError as error:
        return _refused(request, error, caller.version)
    return OffsetFetchResponse(topics=[_old_topic(topic) for topic in answer.topics])


async def _fetch(
    broker: BrokerServices, group: OffsetFetchRequestGroup, require_stable: bool, caller: Caller
) -> OffsetFetchResponseGroup:
    answer = OffsetFetchResponseGroup(group.group_id)
    for part in _parts(group):
        if answer.topics:
            await asyncio.sleep(0)
        found = await broker.groups.call(group.group_id, partial(_fetch_part, part, require_stable, caller))
        _add(answer, found)
    return answer


def _fetch_part(
    part: OffsetFetchRequestGroup, require_stable: bool, caller: Caller, machine: "GroupsMachine", now_ms: int
) -> Result[object]:
    return machine.offset_fetch(part, require_stable, caller, now_ms)


def _parts(group: OffsetFetchRequestGroup) -> list[OffsetFetchRequestGroup]:
    """The group's request in pieces, without repeats of a partition."""
    if group.topics is None:
        return [group]
    topics: dict[tuple[str, bytes], dict[int, None]] = {}
    for topic in group.topics:
        topics.setdefault((topic.name, topic.topic_id), {}).update(dict.fromkeys(topic.partition_indexes))
    indexes = {name: list(partitions) for name, partitions in topics.items()}
    pieces = list(in_pieces(indexes.items())) or [[]]
    return [
        OffsetFetchRequestGroup(
            group.group_id,
            group.member_id,
            group.member_epoch,
            [OffsetFetchRequestTopics(*name, indexes[name][start:end]) for name, start, end in piece],
        )
        for piece in pieces
    ]


def _add(answer: OffsetFetchResponseGroup, part: OffsetFetchResponseGroup) -> None:
    for topic in part.topics:
        last = answer.topics[-1] if answer.topics else None
        if last is not None and (last.name, last.topic_id) == (topic.name, topic.topic_id):
            last.partitions += topic.partitions
        else:
            answer.topics.append(topic)


def _old_topic(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic:
    partitions = [
        OffsetFetchResponsePartition(
            one.partition_index, one.committed_offset, one.committed_leader_epoch, one.metadata, one.error_code
        )
        for one in topic.partitions
    ]
    return OffsetFetchResponseTopic(topic.name, partitions)


def _refused(request: OffsetFetchRequest, error: ApiError, version: int) -> OffsetFetchResponse:
    """What is wrong with the group, where versions before 8 have a place for it."""
    if version >= _FIRST_VERSION_WITH_ERROR:
        return OffsetFetchResponse(error_code=error.code)
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                [
                    OffsetFetchResponsePartition(index, _NOTHING_COMMITTED, metadata="", error_code=error.code)
                    for index in dict.fromkeys(topic.partition_indexes)
                ],
            )
            for topic in request.topics or ()
        ]
    )

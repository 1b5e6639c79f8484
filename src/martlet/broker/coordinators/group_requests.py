"""What the handlers of the group APIs share: the call of a group, its caller, and long lists in pieces for one turn."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from martlet.base.errors import ApiError
from martlet.broker.coordinators.groups import GroupCoordinator
from martlet.broker.ground.request import RequestContext
from martlet.coordinator.result import Result
from martlet.groups.ports import Caller

if TYPE_CHECKING:
    from martlet.groups.machine import GroupsMachine

S = TypeVar("S")
T = TypeVar("T")
Asked = TypeVar("Asked", bound="_OfTopic")
Answered = TypeVar("Answered", bound="_OfTopic")

PARTITIONS_PER_CALL: Final = 2_000
"""In one call of the machine; a request that names more is served in parts."""


async def call_group(
    groups: GroupCoordinator,
    group_id: str,
    operation: "Callable[[GroupsMachine, int], Result[Any, S]]",
    refused: Callable[[ApiError], S],
) -> S:
    """The response of one operation on a group, or the one that carries the error that refused it."""
    try:
        return await groups.call(group_id, operation)
    except ApiError as error:
        return refused(error)


def caller_of(context: RequestContext) -> Caller:
    """The client behind a request, as tools show it."""
    return Caller(context.client_id or "", f"/{context.link.peer.host}", context.version)


class _OfTopic(Protocol):
    """A topic in a request or an answer, a dataclass with its partitions."""

    __dataclass_fields__: ClassVar[dict[str, Any]]
    partitions: Any


async def carried_out_in_pieces(
    topics: Sequence[Asked], carry_out: Callable[[list[Asked]], Awaitable[Sequence[Answered]]]
) -> list[Answered]:
    """The answer for each topic; between two pieces other requests get their turn."""
    answers: dict[int, Answered] = {}
    for piece in in_pieces([(number, topic.partitions) for number, topic in enumerate(topics)]):
        if answers:
            await asyncio.sleep(0)
        part = [
            replace(topics[number], partitions=topics[number].partitions[start:end]) for number, start, end in piece
        ]
        for (number, _, _), answer in zip(piece, await carry_out(part), strict=True):
            if number in answers:
                answers[number].partitions += answer.partitions
            else:
                answers[number] = answer
    return list(answers.values())


def in_pieces(
    topics: Iterable[tuple[T, Sequence[object]]], size: int = PARTITIONS_PER_CALL
) -> Iterator[list[tuple[T, int, int]]]:
    """Cuts topics with their partitions into pieces of at most `size` partitions: (topic, first, behind the last).

    A topic without partitions counts as one, so that many of them are a long list too. No topics make no piece.
    """
    piece: list[tuple[T, int, int]] = []
    left = size
    for topic, partitions in topics:
        start = 0
        while True:
            end = min(len(partitions), start + left)
            piece.append((topic, start, end))
            left -= max(1, end - start)
            start = end
            if left <= 0:
                yield piece
                piece, left = [], size
            if start >= len(partitions):
                break
    if piece:
        yield piece

"""What the handlers of the group APIs share: the call of a group, its caller, and long lists in pieces for one turn."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from martlet.base.errors import ApiError
from martlet.broker.coordinators.groups import GroupCoordinator
from martlet.broker.ground.request import RequestContext
from martlet.coordinator.result import Result
from martlet.groups.ports import Caller

if TYPE_CHECKING:
    from martlet.groups.machine import GroupsMachine

S = TypeVar("S")
T = TypeVar("T")

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

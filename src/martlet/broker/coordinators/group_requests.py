"""What the handlers of the group APIs share: who calls, and long lists cut into pieces that fit a turn of the loop."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from martlet.broker.ground.request import RequestContext
from martlet.groups.ports import Caller

T = TypeVar("T")

PARTITIONS_PER_CALL: Final = 2_000
"""One call of the machine handles so many partitions; a request that names more is carried out in parts."""


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
    room = size
    for topic, partitions in topics:
        start = 0
        while True:
            end = min(len(partitions), start + room)
            piece.append((topic, start, end))
            room -= max(1, end - start)
            start = end
            if room <= 0:
                yield piece
                piece, room = [], size
            if start >= len(partitions):
                break
    if piece:
        yield piece

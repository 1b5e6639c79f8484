"""Acknowledgements of the share protocol as settlements: runs of one verdict, however the client has cut them.

Rules: a request may carry one type for a whole range, or one for each offset; what is neither is refused before any of
it is applied. Offsets of a partition ascend; batches for one partition may stand in several places of a request.

Proved by: tests/unit/queues/share/test_acknowledgements.py
"""

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.engine import Settlement, Verdict

_VERDICTS: Final = tuple(Verdict)


class Batch(Protocol):
    """A range of offsets with its types, as either request of the protocol carries it."""

    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


def settlements_of(batches: Iterable[Batch], *, may_renew: bool) -> list[Settlement]:
    """The verdicts of all batches of one partition; ApiError(INVALID_REQUEST) for what no client may say."""
    settlements: list[Settlement] = []
    previous = -1
    for batch in batches:
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        if not previous < first <= last:
            raise _invalid(f"offsets {first} to {last} do not follow {previous}; batches ascend and do not overlap")
        if len(types) not in (1, last - first + 1):
            raise _invalid(f"{len(types)} types for offsets {first} to {last}; there is one for all, or one for each")
        _check_types(types, may_renew)
        if len(types) == 1:
            settlements.append(Settlement(first, last, _VERDICTS[types[0]]))
        else:
            settlements += _runs(first, types)
        previous = last
    return settlements


def _check_types(types: Sequence[int], may_renew: bool) -> None:
    greatest = Verdict.RENEW if may_renew else Verdict.REJECT
    if min(types) < Verdict.GAP or max(types) > greatest:
        wrong = next(type_ for type_ in types if not Verdict.GAP <= type_ <= greatest)
        raise _invalid(f"an acknowledgement of type {wrong}; types are {int(Verdict.GAP)} to {int(greatest)} here")


def _runs(first: int, types: Sequence[int]) -> Iterable[Settlement]:
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield Settlement(first + begin, first + at - 1, _VERDICTS[types[begin]])
            begin = at


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)

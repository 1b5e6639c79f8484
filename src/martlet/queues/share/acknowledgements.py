"""Acknowledgements of the share protocol as settlements: what no client may say is refused before any of it is applied.

The codec has made runs of them, however the client has cut them (`wire/share_fetch.py`).

Rules: offsets of a partition ascend; a batch has one type for all of its offsets, or one for each; renewing has to be
announced by the request.

Proved by: tests/unit/queues/share/test_acknowledgements.py
"""

from collections.abc import Iterable
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.engine import Settlement, Verdict

_VERDICTS: Final = tuple(Verdict)


def settlements_of(runs: Iterable[tuple[int, int, int]], *, may_renew: bool) -> list[Settlement]:
    """The verdicts on one partition; runs are of first offset, last offset, type. ApiError(INVALID_REQUEST)."""
    settlements: list[Settlement] = []
    previous = -1
    greatest = Verdict.RENEW if may_renew else Verdict.REJECT
    for first, last, type_ in runs:
        if not previous < first <= last:
            raise _invalid(f"offsets {first} to {last} do not follow {previous}; batches ascend and do not overlap")
        if type_ < -128:
            raise _invalid(f"the types for offsets {first} to {last} are neither one for all nor one for each")
        if not Verdict.GAP <= type_ <= greatest:
            allowed = f"{int(Verdict.GAP)} to {int(greatest)}"
            raise _invalid(f"an acknowledgement of type {type_}; types are {allowed} here")
        settlements.append(Settlement(first, last, _VERDICTS[type_]))
        previous = last
    return settlements


def _invalid(detail: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, detail)

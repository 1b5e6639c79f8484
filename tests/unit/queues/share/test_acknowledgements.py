"""Acknowledgements as settlements, and what no client may say."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.engine import Settlement, Verdict
from martlet.queues.share.acknowledgements import settlements_of
from martlet.wire.share_fetch import MISCOUNTED


def test_a_run_is_a_settlement() -> None:
    runs = [(5, 5_000_000_000, 1), (5_000_000_001, 5_000_000_001, 2), (5_000_000_003, 5_000_000_004, 0)]
    assert settlements_of(runs, may_renew=False) == [
        Settlement(5, 5_000_000_000, Verdict.ACCEPT),
        Settlement(5_000_000_001, 5_000_000_001, Verdict.RELEASE),
        Settlement(5_000_000_003, 5_000_000_004, Verdict.GAP),
    ]


def test_renewing_has_to_be_announced() -> None:
    assert settlements_of([(1, 1, 4)], may_renew=True) == [Settlement(1, 1, Verdict.RENEW)]
    with pytest.raises(ApiError, match="types are 0 to 3"):
        settlements_of([(1, 1, 4)], may_renew=False)


@pytest.mark.parametrize(
    ("runs", "word"),
    [
        ([(3, 2, 1)], "do not follow"),
        ([(-2, 2, 1)], "do not follow"),
        ([(0, 5, 1), (5, 6, 1)], "do not follow"),
        ([(5, 6, 1), (0, 1, 1)], "do not follow"),
        ([(0, 5, MISCOUNTED)], "neither one for all nor one for each"),
        ([(0, 1, 5)], "type 5"),
        ([(0, 1, -1)], "type -1"),
        ([(0, 1, -128)], "type -128"),
    ],
)
def test_what_no_client_may_say_is_refused(runs: list[tuple[int, int, int]], word: str) -> None:
    with pytest.raises(ApiError, match=word) as caught:
        settlements_of(runs, may_renew=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST

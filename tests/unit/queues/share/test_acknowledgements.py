"""Acknowledgements as settlements: one type for all, one for each, and what no client may say."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.engine import Settlement, Verdict
from martlet.queues.share.acknowledgements import settlements_of
from martlet.wire.messages.share_acknowledge import AcknowledgementBatch


def test_one_type_stands_for_the_whole_range() -> None:
    batches = [AcknowledgementBatch(5, 5_000_000_000, [1]), AcknowledgementBatch(5_000_000_001, 5_000_000_001, [2])]
    assert settlements_of(batches, may_renew=False) == [
        Settlement(5, 5_000_000_000, Verdict.ACCEPT),
        Settlement(5_000_000_001, 5_000_000_001, Verdict.RELEASE),
    ]


def test_one_type_for_each_becomes_runs() -> None:
    assert settlements_of([AcknowledgementBatch(10, 15, [1, 1, 3, 0, 0, 1])], may_renew=False) == [
        Settlement(10, 11, Verdict.ACCEPT),
        Settlement(12, 12, Verdict.REJECT),
        Settlement(13, 14, Verdict.GAP),
        Settlement(15, 15, Verdict.ACCEPT),
    ]


def test_renewing_has_to_be_announced() -> None:
    batch = AcknowledgementBatch(1, 1, [4])
    assert settlements_of([batch], may_renew=True) == [Settlement(1, 1, Verdict.RENEW)]
    with pytest.raises(ApiError, match="types are 0 to 3"):
        settlements_of([batch], may_renew=False)


@pytest.mark.parametrize(
    ("batches", "word"),
    [
        ([(3, 2, [1])], "do not follow"),
        ([(-2, 2, [1])], "do not follow"),
        ([(0, 5, [1]), (5, 6, [1])], "do not follow"),
        ([(5, 6, [1]), (0, 1, [1])], "do not follow"),
        ([(0, 5, [])], "0 types"),
        ([(0, 5, [1, 1])], "2 types"),
        ([(0, 1, [1, 5])], "type 5"),
        ([(0, 1, [-1])], "type -1"),
    ],
)
def test_what_no_client_may_say_is_refused(batches: list[tuple[int, int, list[int]]], word: str) -> None:
    with pytest.raises(ApiError, match=word) as caught:
        settlements_of([AcknowledgementBatch(*batch) for batch in batches], may_renew=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST

"""Delivery terms in headers: what they mean, and every nonsense refused with its reason."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.delivery_terms import PLAIN, DeliveryLimits, DeliveryTerms, read_terms

NOW = 1_800_000_000_000
Headers = list[tuple[bytes, bytes | None]]


def terms(headers: Headers, limits: DeliveryLimits | None = None) -> DeliveryTerms:
    return read_terms(headers, NOW - 100, NOW, limits or DeliveryLimits())


def test_a_message_without_our_headers_has_plain_terms() -> None:
    assert terms([]) is PLAIN
    assert terms([(b"type", b"order"), (b"martlet-tags", b"vip")]) is PLAIN


def test_what_is_relative_counts_from_the_timestamp() -> None:
    assert terms([(b"martlet-delay-ms", b"5000")]).due_ms == NOW + 4_900
    assert terms([(b"martlet-expire-ms", b"5000")]).expires_ms == NOW + 4_900
    assert terms([(b"martlet-deliver-at", b"1800000000500")]).due_ms == NOW + 500
    assert terms([(b"martlet-expire-at", b"1800000000500")]).expires_ms == NOW + 500


def test_all_of_them_go_together() -> None:
    headers: Headers = [(b"martlet-delay-ms", b"1"), (b"martlet-expire-ms", b"2"), (b"martlet-priority", b"9")]
    assert terms(headers) == DeliveryTerms(NOW - 99, NOW - 98, 9)


@pytest.mark.parametrize("value", [None, b"", b"soon", b"-5", b"+5", b"5.0", b" 5", b"1e3", b"9" * 16, "５".encode()])
@pytest.mark.parametrize(
    "name", [b"martlet-delay-ms", b"martlet-deliver-at", b"martlet-expire-ms", b"martlet-expire-at"]
)
def test_a_time_that_is_no_number_is_refused(name: bytes, value: bytes | None) -> None:
    with pytest.raises(ApiError, match=name.decode()) as caught:
        terms([(name, value)])
    assert caught.value.code is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("value", [None, b"", b"10", b"-1", b"high"])
def test_a_priority_that_is_none_is_refused(value: bytes | None) -> None:
    with pytest.raises(ApiError, match="one digit from 0 to 9"):
        terms([(b"martlet-priority", value)])


@pytest.mark.parametrize(
    ("headers", "word"),
    [
        ([(b"martlet-delay-ms", b"1"), (b"martlet-delay-ms", b"2")], "given twice"),
        ([(b"martlet-delay-ms", b"1"), (b"martlet-deliver-at", b"2")], "martlet-deliver-at is given as well"),
        ([(b"martlet-expire-ms", b"1"), (b"martlet-expire-at", b"2")], "martlet-expire-at is given as well"),
        ([(b"martlet-delay-ms", b"9"), (b"martlet-expire-ms", b"9")], "expire before it is due"),
    ],
)
def test_terms_that_contradict_each_other_are_refused(headers: Headers, word: str) -> None:
    with pytest.raises(ApiError, match=word):
        terms(headers)


def test_a_delay_beyond_what_the_topic_allows_or_keeps_is_refused() -> None:
    hour: Headers = [(b"martlet-delay-ms", b"3600000")]
    assert terms(hour, DeliveryLimits(delay_max_ms=3_600_000)).due_ms == NOW + 3_599_900
    with pytest.raises(ApiError, match=r"martlet\.delay\.max\.ms"):
        terms(hour, DeliveryLimits(delay_max_ms=3_599_899))
    with pytest.raises(ApiError, match=r"retention\.ms"):
        terms(hour, DeliveryLimits(kept_ms=60_000))

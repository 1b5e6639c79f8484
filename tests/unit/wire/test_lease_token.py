"""Lease tokens: text and back, and everything that is none."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.wire.lease_token import LeaseToken, read_token

TOKEN = LeaseToken(TopicId(bytes(range(16))), 3, 7, 1_234_567_890_123, 2, "worker-é")


def test_a_token_has_this_text() -> None:
    assert TOKEN.text() == ("AQABAgMEBQYHCAkKCwwNDg8AAAADAAAABwAAAR9x-wTLAndvcmtlci3Dqcm25MY"), (
        "tokens that are out when a broker is upgraded must stay readable"
    )
    assert read_token(TOKEN.text()) == TOKEN


@given(
    st.binary(min_size=16, max_size=16),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 30),
    st.integers(0, 1 << 62),
    st.integers(1, 255),
    st.text(st.characters(codec="utf-8"), max_size=40),
)
def test_a_token_survives_its_text(
    topic_id: bytes, partition: int, lease_epoch: int, offset: int, attempt: int, holder: str
) -> None:
    token = LeaseToken(TopicId(topic_id), partition, lease_epoch, offset, attempt, holder)
    assert read_token(token.text()) == token


@given(st.integers(0, 61), st.sampled_from("AZaz09-_"))
def test_a_token_with_a_wrong_letter_is_refused(at: int, letter: str) -> None:
    text = TOKEN.text()
    if text[at] == letter:
        return
    with pytest.raises(ApiError, match="cannot be read"):
        read_token(text[:at] + letter + text[at + 1 :])


@pytest.mark.parametrize("text", ["", "A", "abcd", TOKEN.text()[:-1], TOKEN.text() + "AAAA", "é" * 40, "*" * 60])
def test_what_is_no_token_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as caught:
        read_token(text)
    assert caught.value.code is ErrorCode.INVALID_REQUEST

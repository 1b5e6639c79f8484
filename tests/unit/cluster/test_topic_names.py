"""Which names pass and what is said about those that do not."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.cluster.keys import topic_key
from martlet.cluster.topic_names import check_topic_name, is_internal_topic


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "__consumer_offsets", "x" * 249])
def test_allowed_names_pass(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("", "at least one character"),
        (".", "cannot be named"),
        ("..", "cannot be named"),
        ("x" * 250, "at most 249 characters"),
        ("a b", "only ASCII letters"),
        ("a/b", "only ASCII letters"),
        ("../../etc/passwd", "only ASCII letters"),
        ("a\nb", "only ASCII letters"),
        ("a\n", "only ASCII letters"),
        ("a\x00", "only ASCII letters"),
        ("été", "only ASCII letters"),
        ("٣", "only ASCII letters"),
    ],
)
def test_a_refused_name_is_answered_with_the_rule_it_breaks(name: str, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert caught.value.detail.isprintable()


def test_names_that_differ_only_in_dot_and_underscore_collide() -> None:
    assert topic_key("a.b") == topic_key("a_b")
    assert topic_key("a.b") != topic_key("a-b")


def test_only_the_reserved_names_are_internal() -> None:
    assert is_internal_topic("__transaction_state")
    assert not is_internal_topic("__mine")

"""Regular expressions: whole names, clear refusals, and no pattern that costs much."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.consumer.topic_regex import REGEX_LENGTH_MAX, check_regex, matching_topics


def test_an_expression_matches_whole_names() -> None:
    assert matching_topics("a|b.*", ["a", "ab", "b", "bc", "xb"]) == ("a", "b", "bc")


@pytest.mark.parametrize(
    ("regex", "reason"),
    [
        ("(", "missing )"),
        ("a**", "bad repetition operator: **"),
        ("(?=a)b", "invalid perl operator: (?="),
        (r"(a)\1", "invalid escape sequence"),
        ("((a{100}){100}){100}", "invalid repetition size"),
        ("[z-a]", "invalid character class range"),
        ("\ud800", "utf-8"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_fault(regex: str, reason: str) -> None:
    with pytest.raises(ApiError) as refusal:
        check_regex(regex)
    assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert reason in refusal.value.detail


def test_an_expression_that_is_too_long_or_too_large_is_refused() -> None:
    for regex in ("x" * (REGEX_LENGTH_MAX + 1), "(" + "|".join([r"\pL{1000}"] * 800) + ")"):
        with pytest.raises(ApiError) as refusal:
            check_regex(regex)
        assert refusal.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_patterns_that_ruin_backtracking_engines_cost_nothing() -> None:
    names = ["a" * 240 + "!" for _ in range(50)]
    for regex in ("(a+)+", "(a|a)*b", "(a|aa)+$", "(.*a){20}"):
        assert matching_topics(regex, names) == ()

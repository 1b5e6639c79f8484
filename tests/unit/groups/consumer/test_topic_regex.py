"""Regular expressions: whole names, clear refusals, and no pattern that costs much."""

import time

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


@pytest.mark.parametrize(
    "regex",
    [
        "x{0,1000}" * 20,
        "x{0,1000}" * 900,
        "x{1000}" * 1_100,
        "x{900,}" * 1_100,
        "(x?){1000}" * 20,
        "(.?){249}" * 9,
        "(.{0,30}x)?" * 50,
    ],
)
def test_an_expression_whose_counts_make_it_large_is_refused_at_once(regex: str) -> None:
    started_at = time.process_time()
    with pytest.raises(ApiError, match="pattern too large"):
        check_regex(regex)
    assert time.process_time() - started_at < 0.5


@pytest.mark.parametrize("regex", ["(x?y?)" * 600, "(x?){500}", ".?x?" * 100, "(.*[a-z0-9]){50}"])
def test_the_largest_expressions_allowed_match_long_names_quickly(regex: str) -> None:
    names = ["x" * (249 - number % 3) for number in range(200)]
    started_at = time.process_time()
    check_regex(regex)
    matching_topics(regex, names)
    assert time.process_time() - started_at < 0.5


def test_a_long_list_of_names_is_an_expression_still() -> None:
    names = [f"topic-{number:04d}" for number in range(700)]
    assert matching_topics("|".join(names), [*names, "topic-9"]) == tuple(names)

"""Filters: what they mean, where a mistake is, and that nothing makes them slow."""

import time

import pytest

from martlet.queues.filters import DEPTH_MAX, TERMS_MAX, TEXT_MAX, Filter, FilterMistake

HEADERS = {"kind": "order", "total": "120", "empty": "", "word": "many", "content-type": "text/plain"}


def matches(text: str) -> bool:
    return Filter(text).matches(HEADERS, ["vip", "eu"], key="user-7", topic="orders", priority=4, size=300)


@pytest.mark.parametrize(
    "text",
    [
        "true",
        'headers.kind == "order"',
        "headers['kind'] == 'order'",
        'headers["content-type"] == "text/plain"',
        'headers.kind != "refund"',
        'headers.kind == "refund" || headers.kind == "order"',
        'headers.kind == "order" && key.startsWith("user-")',
        'key.endsWith("7") && topic.contains("der")',
        '"vip" in tags && !("us" in tags)',
        'headers.kind in ["order", "refund"]',
        '"kind" in headers && !("other" in headers)',
        "int(headers.total) >= 100 && int(headers.total) < 121",
        "priority == 4 && size > 299.5 && size <= 300",
        "priority in [3, 4]",
        "has(headers.kind) && !has(headers.absent) && has(key)",
        "has(headers.empty)",
        'headers.kind > "oraaa"',
        '!!(headers.kind == "order")',
        '("abc").contains("b")',
        r'headers.kind == "\u006frder"',
        "size > -1",
    ],
)
def test_a_message_is_wanted(text: str) -> None:
    assert matches(text)


@pytest.mark.parametrize(
    "text",
    [
        "false",
        'headers.kind == "refund"',
        'headers.absent == "x"',
        'headers.absent != "x"',
        "headers.absent == headers.absent",
        "headers.absent != headers.kind",
        'headers.absent < "x"',
        'headers.absent.contains("")',
        'headers.absent in ["x"]',
        "headers.absent in tags",
        "int(headers.absent) == 1",
        "int(headers.word) != 1",
        "int(headers.word) < 1",
        "int(headers.empty) == 0",
    ],
)
def test_a_message_is_not_wanted(text: str) -> None:
    assert not matches(text)


def test_a_key_that_is_null_is_absent() -> None:
    assert not Filter('key != "x"').matches({})
    assert Filter("!has(key)").matches({})


def test_a_text_that_is_no_number_is_counted_and_never_raises() -> None:
    wanted = Filter('int(headers.n) > 1 || headers.kind == "order"')
    assert wanted.matches({"n": "one", "kind": "order"})
    assert not wanted.matches({"n": "9" * 5000})
    assert wanted.failures == 1


def test_a_filter_knows_which_headers_it_reads() -> None:
    assert Filter('headers.a == "1" && (has(headers["b-c"]) || int(headers.d) > 1)').headers == {"a", "b-c", "d"}


@pytest.mark.parametrize(
    ("text", "word", "position"),
    [
        ("", "comes where a value is expected", 0),
        ("headers.kind", "a condition is expected, not a text", 0),
        ("headers.kind = 'x'", "'=' is not understood", 13),
        ("headers.kind == 3", "a text cannot be compared with a number", 0),
        ("true && priority", "a condition is expected, not a number", 8),
        ("true true", "'true' follows", 5),
        ("header.kind == 'x'", "'header' is unknown", 0),
        ("(true", "')' is expected, not 'the end'", 5),
        ("key.matches('x')", "a text has no 'matches'", 4),
        ("size.length == 1", "a number has no 'length'", 5),
        ("int(tags) == 1", "int() is asked of a header", 4),
        ("int(headers) == 1", "int() is asked of a header", 4),
        ("has(has(headers.x))", "has() is asked of a header", 4),
        ("key in [key]", "a list holds constants only", 8),
        ("key in topic", "'in' needs a list", 0),
        ("true in tags", "a condition is in no list", 0),
        ("headers[key] == 'x'", "a constant text", 8),
        (r"key == 'a\qb'", "is no escape", 9),
        ("key == 'open", '"\'" is not understood', 7),
        ("key.contains(topic2)", "unknown", 13),
        ("1 + 1 == 2", "'+' is not understood", 2),
        ("[1,2] == [1,2]", "a list cannot be compared", 0),
        ("key == 'naïve' ¬", "'¬' is not understood", 15),
    ],
)
def test_a_mistake_is_named_with_its_position(text: str, word: str, position: int) -> None:
    with pytest.raises(FilterMistake) as caught:
        Filter(text)
    assert word in str(caught.value)
    assert caught.value.position == position
    assert f"at character {position + 1} of the filter" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("true" + " " * TEXT_MAX, "characters"),
        ("(" * (DEPTH_MAX + 1) + "true", "nested"),
        ("||".join(["true"] * (TERMS_MAX + 1)), "terms"),
        ("!" * 1000 + "true", "terms"),
        ("has(" * 200, "asked of a header"),
        ("key in [" + "1," * 200 + "1]", "terms"),
    ],
)
def test_a_filter_has_limits(text: str, word: str) -> None:
    with pytest.raises(FilterMistake, match=word):
        Filter(text)


def test_no_filter_within_the_limits_takes_long() -> None:
    text = " || ".join(['headers.a.contains("x")'] * 35)
    wanted = Filter(text)
    started = time.process_time()
    for _ in range(200):
        assert not wanted.matches({"a": "y" * 1000})
    assert time.process_time() - started < 1.0


def test_names_of_python_are_not_reachable() -> None:
    for text in ("__import__('os') == 1", "headers.__class__ == 'x'", "key.__len__('x')", "number == 1"):
        try:
            assert not Filter(text).matches({})
        except FilterMistake:
            continue

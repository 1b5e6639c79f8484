"""Filters mean what a plain interpreter of the same expressions says; any other text is a FilterMistake."""

from collections.abc import Callable
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from martlet.queues.filters import Filter, FilterMistake

TEXTS = ["", "a", "b", "ab", "7", "12"]
Message = dict[str, Any]
Condition = tuple[str, Callable[[Message], bool]]
"""An expression and what it means."""

OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda one, other: bool(one == other),
    "!=": lambda one, other: bool(one != other),
    "<": lambda one, other: bool(one < other),
    "<=": lambda one, other: bool(one <= other),
    ">": lambda one, other: bool(one > other),
    ">=": lambda one, other: bool(one >= other),
}


def number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


texts = st.one_of(
    st.sampled_from(TEXTS).map(lambda text: (f'"{text}"', lambda message: text)),
    st.sampled_from("xyz").map(lambda name: (f"headers.{name}", lambda message: message["headers"].get(name))),
    st.just(("key", lambda message: message["key"])),
)
numbers = st.one_of(
    st.integers(-3, 15).map(lambda value: (str(value), lambda message: value)),
    st.sampled_from("xyz").map(lambda n: (f"int(headers.{n})", lambda message: number(message["headers"].get(n)))),
    st.just(("priority", lambda message: message["priority"])),
)


def comparison(sign: str, left: Any, right: Any) -> Condition:
    def means(message: Message) -> bool:
        one, other = left[1](message), right[1](message)
        return one is not None and other is not None and OPERATORS[sign](one, other)

    return f"{left[0]} {sign} {right[0]}", means


def method(name: str, subject: Any, argument: str) -> Condition:
    python = {"startsWith": str.startswith, "endsWith": str.endswith, "contains": str.__contains__}[name]

    def means(message: Message) -> bool:
        value = subject[1](message)
        return value is not None and bool(python(value, argument))

    return f'{subject[0]}.{name}("{argument}")', means


signs = st.sampled_from(sorted(OPERATORS))
conditions: st.SearchStrategy[Condition] = st.recursive(
    st.one_of(
        st.builds(comparison, signs, texts, texts),
        st.builds(comparison, signs, numbers, numbers),
        st.builds(method, st.sampled_from(["startsWith", "endsWith", "contains"]), texts, st.sampled_from(TEXTS)),
        texts.map(lambda part: (f"{part[0]} in tags", lambda message: part[1](message) in message["tags"])),
        st.sampled_from("xyz").map(lambda n: (f"has(headers.{n})", lambda message: n in message["headers"])),
    ),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]} && {p[1][0]})", lambda m: p[0][1](m) and p[1][1](m))),
        st.tuples(inner, inner).map(lambda p: (f"({p[0][0]} || {p[1][0]})", lambda m: p[0][1](m) or p[1][1](m))),
        inner.map(lambda part: (f"!({part[0]})", lambda message: not part[1](message))),
    ),
    max_leaves=8,
)
messages = st.fixed_dictionaries(
    {
        "headers": st.dictionaries(st.sampled_from("xyz"), st.sampled_from(TEXTS)),
        "tags": st.lists(st.sampled_from(TEXTS), max_size=3),
        "key": st.one_of(st.none(), st.sampled_from(TEXTS)),
        "priority": st.integers(0, 9),
    }
)


@given(conditions, st.lists(messages, min_size=1, max_size=5))
def test_a_filter_means_what_it_says(condition: Condition, looked_at: list[Message]) -> None:
    text, means = condition
    wanted = Filter(text)
    for message in looked_at:
        assert wanted.matches(**message) is means(message), text


@given(st.text(max_size=80))
def test_any_text_is_a_filter_or_a_mistake(text: str) -> None:
    with suppress(FilterMistake):
        Filter(text).matches({})


FRAGMENTS = [
    "headers",
    ".",
    "x",
    "[",
    "]",
    '"a"',
    "(",
    ")",
    "&&",
    "||",
    "!",
    "==",
    "<",
    "in",
    "tags",
    "1",
    "int",
    "has",
]


@given(st.lists(st.sampled_from([*FRAGMENTS, "key", "true", ",", "contains"]), max_size=20))
def test_any_sequence_of_words_is_a_filter_or_a_mistake(words: list[str]) -> None:
    with suppress(FilterMistake):
        assert Filter(" ".join(words)).matches({}) in (True, False)

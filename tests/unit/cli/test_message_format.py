"""Messages as text: kcat's letters and JSON lines."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from martlet.base.ids import TopicPartition
from martlet.cli.message_format import (
    InputMessage,
    Message,
    compile_format,
    json_line,
    parse_json_line,
    unescape,
)

MESSAGE = Message(TopicPartition("t", 3), 42, 1700000000000, b"k", b"val", [("a", b"1"), ("b", None)])
NULLS = Message(TopicPartition("t", 0), 0, 0, None, None, [])


def test_every_letter_prints_what_kcat_prints() -> None:
    text = r"%t %p %o %T %k %s %h %K %S %%\t\x41\\" + r"\n"
    assert compile_format(text)(MESSAGE) == b"t 3 42 1700000000000 k val a=1,b= 1 3 %\tA\\\n"


def test_nulls_print_as_nothing_and_have_length_minus_one() -> None:
    assert compile_format("[%k|%s|%h|%K|%S]")(NULLS) == b"[|||-1|-1]"


def test_bytes_pass_unchanged() -> None:
    assert compile_format("%s")(MESSAGE._replace(value=b"\xff\x00")) == b"\xff\x00"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("%z", r"%z means nothing; use %t %p %o %T %k %s %K %S %h %%"),
        ("100%", r"% means nothing; use %t %p %o %T %k %s %K %S %h %%"),
        (r"\q", r"\q means nothing; use \n \t \r \0 \\ or \xHH"),
        ("x\\", "a backslash at the end means nothing; write \\\\ for one"),
    ],
)
def test_what_means_nothing_is_refused_with_what_does(text: str, sentence: str) -> None:
    with pytest.raises(ValueError, match="means nothing") as caught:
        compile_format(text)
    assert str(caught.value) == sentence


def test_escapes_are_replaced_once() -> None:
    assert unescape(r"a\\nb\n") == b"a\\nb\n"


def test_a_json_line_has_every_field_and_binary_as_base64() -> None:
    line = json_line(MESSAGE._replace(value=b"\xff"))
    assert json.loads(line) == {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "timestamp_ms": 1700000000000,
        "key": "k",
        "value_base64": "/w==",
        "headers": [{"name": "a", "value": "1"}, {"name": "b", "value": None}],
    }
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=20),
    headers=st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3),
)
def test_what_consume_prints_publish_takes(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    printed = json_line(Message(TopicPartition("t", 1), 5, 77, key, value, headers))
    assert parse_json_line(printed) == InputMessage(value, key, headers or (), 1, 77)


def test_values_that_are_no_strings_become_json_text_and_headers_may_be_an_object() -> None:
    message = parse_json_line(b'{"value": {"a": [1, 2]}, "key": 7, "headers": {"h": "v"}}')
    assert message == InputMessage(b'{"a":[1,2]}', b"7", [("h", b"v")])


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (b"nope", "not JSON: Expecting value: line 1 column 1 (char 0)"),
        (b"[1]", 'not a JSON object; write {"value": …}'),
        (b"{}", 'no "value"; write null for a message without one'),
        (
            b'{"value": 1, "vlaue": 2}',
            "unknown field 'vlaue'; allowed are headers, key, key_base64, offset, partition, "
            "timestamp_ms, topic, value, value_base64",
        ),
        (b'{"value": 1, "partition": "x"}', "partition is not a whole number from 0 up"),
        (b'{"value": 1, "timestamp_ms": -5}', "timestamp_ms is not a whole number from 0 up"),
        (b'{"value_base64": "%"}', "value_base64 is not base64"),
        (b'{"value": 1, "headers": [1]}', 'headers are an object, or a list of {"name": …, "value": …}'),
    ],
)
def test_a_bad_json_line_is_refused_with_the_reason(line: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        parse_json_line(line)
    assert str(caught.value) == sentence

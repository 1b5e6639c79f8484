"""The generated codec at every version of every message: equal to the schema library's, and safe on any bytes.

Messages are drawn from the layout of a version, so a new module in `wire.messages` is covered without a change here.
"""

import contextlib
import io
import struct
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as SchemaErrorCode
from kio.serial import entity_reader, entity_writer

from martlet.base.errors import ProtocolViolation
from martlet.wire import primitives
from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import read_request_header, read_response_header
from martlet.wire.layout import FieldLayout, StructLayout, message_layout
from martlet.wire.message_codec import decode, encode
from tests.unit.wire.message_catalogue import all_versions, fill, schema_class, to_schema

INTEGER_BITS = {"b": 8, "h": 16, "i": 32, "q": 64}

versions = st.sampled_from(all_versions())
flexible_versions = st.sampled_from([entry for entry in all_versions() if message_layout(*entry).is_flexible])
texts = st.one_of(st.text(max_size=5), st.text(alphabet="a", min_size=120, max_size=135))


def scalar(field: FieldLayout) -> st.SearchStrategy[Any]:
    if field.kind == "string":
        return texts
    if field.kind == "bytes":
        return st.binary(max_size=200)
    if field.name.endswith("error_code"):
        # The schema library refuses codes it does not know.
        return st.sampled_from([code.value for code in SchemaErrorCode])
    if field.format == "?":
        return st.booleans()
    if field.format == "d":
        return st.floats(allow_nan=False)
    if field.format == "16s":
        return st.binary(min_size=16, max_size=16)
    if field.format == "H":
        return st.integers(0, 65535)
    half = 1 << (INTEGER_BITS[field.format] - 1)
    if field.name.endswith("_ms"):
        # The schema library computes with seconds as a float: beyond this it is not exact any more.
        half = min(half, 1 << 40)
    if field.name == "transaction_start_time_ms":
        # The schema library writes an instant before 1970 and does not read it.
        return st.integers(0, half - 1)
    return st.integers(-half, half - 1)


def choice(field: FieldLayout) -> st.SearchStrategy[Any]:
    if field.is_array:
        lengths: st.SearchStrategy[Any] = (
            st.one_of(st.integers(0, 2), st.just(130)) if is_flat(field) else st.integers(0, 2)
        )
        return st.none() | lengths if field.is_nullable else lengths
    if field.struct is not None:
        return st.booleans()
    return st.none() | scalar(field) if field.is_nullable else scalar(field)


def is_flat(field: FieldLayout) -> bool:
    """Whether many elements are still a small message."""
    return field.kind == "fixed"


@st.composite
def messages(draw: st.DrawFn, entries: st.SearchStrategy[tuple[type[Any], int]] = versions) -> tuple[Any, int]:
    message_class, version = draw(entries)
    return fill(message_layout(message_class, version), lambda field: draw(choice(field))), version


@settings(max_examples=400, deadline=None)
@given(messages())
def test_bytes_and_values_are_those_of_the_schema_library(drawn: tuple[Any, int]) -> None:
    message, version = drawn
    schema = schema_class(type(message), version)
    expected = to_schema(message, schema)
    out = io.BytesIO()
    entity_writer(schema)(out, expected)

    encoded = encode(message, version)

    assert encoded == out.getvalue()
    assert entity_reader(schema)(encoded, 0) == (expected, len(encoded))
    assert decode(type(message), version, encoded) == message


@settings(max_examples=300, deadline=None)
@given(messages(flexible_versions), st.lists(st.tuples(st.integers(100, 2**32 - 1), st.binary(max_size=8)), max_size=4))
def test_unknown_tagged_fields_are_skipped_in_every_struct(
    drawn: tuple[Any, int], tags: list[tuple[int, bytes]]
) -> None:
    message, version = drawn
    out = bytearray()
    write_with_tags(message_layout(type(message), version), message, sorted(dict(tags).items()), out)
    assert decode(type(message), version, out) == message


def write_with_tags(layout: StructLayout, message: Any, unknown: list[tuple[int, bytes]], out: bytearray) -> None:
    """A slow and simple encoder of flexible versions that adds fields to every tagged section."""
    for field in layout.fields:
        write_value(field, getattr(message, field.name), unknown, out)
    tagged: list[tuple[int, bytes]] = []
    for tag, field in layout.tagged_fields:
        part = bytearray()
        write_value(field, getattr(message, field.name), unknown, part)
        tagged.append((tag, bytes(part)))
    primitives.write_uvarint(out, len(tagged) + len(unknown))
    for tag, raw in [*tagged, *unknown]:
        primitives.write_uvarint(out, tag)
        primitives.write_uvarint(out, len(raw))
        out += raw


def write_value(field: FieldLayout, value: Any, unknown: list[tuple[int, bytes]], out: bytearray) -> None:
    if field.is_array:
        primitives.write_uvarint(out, 0 if value is None else len(value) + 1)
        for element in value or ():
            write_element(field, element, unknown, out)
    elif field.struct is not None and field.is_nullable:
        out.append(255 if value is None else 1)
        if value is not None:
            write_element(field, value, unknown, out)
    else:
        write_element(field, value, unknown, out)


def write_element(field: FieldLayout, value: Any, unknown: list[tuple[int, bytes]], out: bytearray) -> None:
    if field.struct is not None:
        write_with_tags(field.struct, value, unknown, out)
    elif field.kind == "string":
        primitives.write_compact_nullable_string(out, value)
    elif field.kind == "bytes":
        primitives.write_uvarint(out, len(value) + 1)
        out += value
    elif field.format == "16s":
        out += value
    else:
        out += struct.pack(f">{field.format}", value)


@st.composite
def mutations(draw: st.DrawFn, data: bytes) -> bytes:
    """The same bytes with a few of them changed, lost or added."""
    mutated = bytearray(data)
    for _ in range(draw(st.integers(1, 4))):
        position = draw(st.integers(0, len(mutated)))
        match draw(st.integers(0, 4)):
            case 0 if position < len(mutated):
                mutated[position] ^= 1 << draw(st.integers(0, 7))
            case 1 if position < len(mutated):
                mutated[position] = draw(st.sampled_from([0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF]))
            case 2:
                del mutated[position:]
            case 3:
                mutated[position:position] = draw(st.binary(min_size=1, max_size=6))
            case _:
                mutated += draw(st.binary(min_size=1, max_size=6))
    return bytes(mutated)


@settings(max_examples=600, deadline=None)
@given(st.data(), messages())
def test_mutated_bytes_are_a_violation_or_another_message(data: st.DataObject, drawn: tuple[Any, int]) -> None:
    message, version = drawn
    check_any_bytes(type(message), version, data.draw(mutations(encode(message, version))))


@settings(max_examples=400, deadline=None)
@given(versions, st.binary(max_size=60))
def test_random_bytes_are_a_violation_or_a_message(entry: tuple[type[Any], int], data: bytes) -> None:
    check_any_bytes(*entry, data)


@settings(max_examples=300, deadline=None)
@given(versions, st.integers(0, 100), st.binary(max_size=40))
def test_random_bytes_are_a_violation_or_a_header(entry: tuple[type[Any], int], version: int, data: bytes) -> None:
    api_key = ApiKey[entry[0].__module__.rpartition(".")[2].upper()]
    start = api_key.to_bytes(2, "big") + version.to_bytes(2, "big")
    for frame in (data, start + data):
        with contextlib.suppress(ProtocolViolation):
            assert read_request_header(frame).body_position <= len(frame)
        with contextlib.suppress(ProtocolViolation):
            assert read_response_header(frame, api_key, version)[1] <= len(frame)


@settings(max_examples=60, deadline=None)
@given(messages())
def test_a_message_cut_anywhere_is_a_violation_and_bytes_behind_are_for_requests_only(drawn: tuple[Any, int]) -> None:
    message, version = drawn
    whole = encode(message, version)
    for size in range(0, len(whole), 1 + len(whole) // 50):
        assert check_any_bytes(type(message), version, whole[:size]) is None
    with_rest = check_any_bytes(type(message), version, whole + b"\x00")
    if type(message).__name__.endswith("Request"):
        assert with_rest == decode(type(message), version, whole)
    else:
        assert with_rest is None


def check_any_bytes(message_class: type[Any], version: int, data: bytes) -> Any:
    """Decode: a violation, or a message that can be written and read again."""
    try:
        message = decode(message_class, version, data)
    except ProtocolViolation:
        return None
    assert decode(message_class, version, encode(message, version)) == message
    return message

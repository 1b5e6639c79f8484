r"""Messages as text: `consume --format` in kcat's letters, and the JSON lines of `consume` and `publish`.

    %t topic   %p partition   %o offset   %T timestamp (ms)   %k key   %s value   %h headers (name=value,…)
    %K length of the key      %S length of the value          %% a percent sign
    \n \t \r \0 \\ \xHH as usual

A null key or value prints as nothing and has length -1. In JSON a key, value or header that is not UTF-8 travels as
base64 under `key_base64` or `value_base64`; what `consume --json` prints, `publish --jsonl` takes.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from martlet.base.ids import TopicPartition

Headers: TypeAlias = Sequence[tuple[str, bytes | None]]


class Message(NamedTuple):
    """A message with its place, as `consume` prints it."""

    partition: TopicPartition
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Headers


class InputMessage(NamedTuple):
    """A message to publish; what is None is left to the topic or the command line."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    partition: int | None = None
    timestamp_ms: int | None = None


Printer: TypeAlias = Callable[[Message], bytes]

_ESCAPE: Final = re.compile(r"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)
_ESCAPES: Final = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

_LETTERS: Final[Mapping[str, Printer]] = {
    "t": lambda message: message.partition.topic.encode(),
    "p": lambda message: b"%d" % message.partition.partition,
    "o": lambda message: b"%d" % message.offset,
    "T": lambda message: b"%d" % message.timestamp_ms,
    "k": lambda message: message.key or b"",
    "s": lambda message: message.value or b"",
    "K": lambda message: b"%d" % (-1 if message.key is None else len(message.key)),
    "S": lambda message: b"%d" % (-1 if message.value is None else len(message.value)),
    "h": lambda message: b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers),
    "%": lambda message: b"%",
}


def unescape(text: str) -> bytes:
    """The text with backslash sequences replaced; raises ValueError for one that means nothing."""
    parts = []
    position = 0
    for match in _ESCAPE.finditer(text):
        parts.append(text[position : match.start()].encode())
        code = match.group(1)
        if len(code) == 3:
            parts.append(bytes.fromhex(code[1:]))
        elif code in _ESCAPES:
            parts.append(_ESCAPES[code])
        else:
            raise ValueError(f"\\{code} means nothing; use \\n \\t \\r \\0 \\\\ or \\xHH")
        position = match.end()
    rest = text[position:]
    if rest.endswith("\\"):
        raise ValueError("a backslash at the end means nothing; write \\\\ for one")
    parts.append(rest.encode())
    return b"".join(parts)


def compile_format(text: str) -> Printer:
    """A function that prints one message; raises ValueError for a letter that means nothing."""
    pieces: list[bytes | Printer] = []
    for position, part in enumerate(re.split(r"(%.?)", text, flags=re.DOTALL)):
        if position % 2 == 0:
            if part:
                pieces.append(unescape(part))
            continue
        printer = _LETTERS.get(part[1:])
        if printer is None:
            raise ValueError(f"{part} means nothing; use {' '.join(f'%{letter}' for letter in _LETTERS)}")
        pieces.append(printer)
    return lambda message: b"".join(piece if isinstance(piece, bytes) else piece(message) for piece in pieces)


def json_line(message: Message) -> bytes:
    """One message as one line of JSON."""
    line: dict[str, Any] = {
        "topic": message.partition.topic,
        "partition": message.partition.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        **_json_bytes("key", message.key),
        **_json_bytes("value", message.value),
    }
    if message.headers:
        line["headers"] = [{"name": name, **_json_bytes("value", value)} for name, value in message.headers]
    return json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


def _json_bytes(field: str, data: bytes | None) -> dict[str, str | None]:
    if data is None:
        return {field: None}
    try:
        return {field: data.decode()}
    except UnicodeDecodeError:
        return {f"{field}_base64": base64.b64encode(data).decode()}


_INPUT_FIELDS: Final = frozenset(
    {"topic", "offset", "partition", "timestamp_ms", "key", "key_base64", "value", "value_base64", "headers"}
)


def parse_json_line(line: bytes) -> InputMessage:
    """One line of `--jsonl`; raises ValueError saying what is wrong with it."""
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not JSON: {error}") from None
    if not isinstance(fields, dict):
        raise ValueError('not a JSON object; write {"value": …}')
    unknown = sorted(set(fields) - _INPUT_FIELDS)
    if unknown:
        raise ValueError(f"unknown field {unknown[0]!r}; allowed are {', '.join(sorted(_INPUT_FIELDS))}")
    if "value" not in fields and "value_base64" not in fields:
        raise ValueError('no "value"; write null for a message without one')
    return InputMessage(
        value=_bytes_of(fields, "value"),
        key=_bytes_of(fields, "key"),
        headers=_headers_of(fields.get("headers")),
        partition=_integer_of(fields, "partition"),
        timestamp_ms=_integer_of(fields, "timestamp_ms"),
    )


def _bytes_of(fields: Mapping[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, TypeError, ValueError):
            raise ValueError(f"{name}_base64 is not base64") from None
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return None if value is None else value.encode()
    # An object, array or number becomes its own JSON text, so that a value need not be quoted twice.
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _integer_of(fields: Mapping[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63):
        raise ValueError(f"{name} is not a whole number from 0 up")
    return value


def _headers_of(headers: Any) -> Headers:
    if headers is None:
        return ()
    if isinstance(headers, dict):
        headers = [{"name": name, "value": value} for name, value in headers.items()]
    if not isinstance(headers, list) or not all(
        isinstance(h, dict) and isinstance(h.get("name"), str) for h in headers
    ):
        raise ValueError('headers are an object, or a list of {"name": …, "value": …}')
    return [(header["name"], _bytes_of(header, "value")) for header in headers]

"""Messages to bytes and back, for every API whose classes are in `wire.messages`.

How it works: the first time a version of a class is used, its layout is looked up in the schema and functions are
generated and compiled for exactly that layout (`decoder_source`, `encoder_source`, `error_source`). That costs a few
milliseconds, the very first time also the import of the schema library (over 100 ms); `prepare` does it ahead of time.

Invariants:

MSG-1 Whatever the bytes, `decode` returns a message or raises ProtocolViolation.
MSG-2 What `decode` allocates is bounded by the number of bytes given and by the object budget: the number of array
   elements and tagged fields, all levels together, that one message may have.
MSG-3 `decode` gives back what `encode` was given, as far as the version can carry it.

Proved by: tests/unit/wire/test_message_bytes.py, tests/properties/test_message_codec.py
"""

from collections.abc import Callable
from struct import error
from typing import Any, Final, NamedTuple, TypeVar

from martlet.base.errors import ProtocolViolation
from martlet.wire.decoder_source import compile_decoder
from martlet.wire.encoder_source import compile_encoder
from martlet.wire.error_source import compile_errors
from martlet.wire.layout import message_kind, message_layout
from martlet.wire.primitives import Buffer

T = TypeVar("T")

REQUEST_OBJECT_BUDGET: Final = 125_000
"""Enough to ask for 100,000 partitions at once; a client that sends more than this is not served."""

RESPONSE_OBJECT_BUDGET: Final = 4_000_000
"""For the client side: the metadata of several hundred thousand partitions, from a broker one has chosen to trust."""


class _Codec(NamedTuple):
    decode: Callable[[bytes, int, int], Any]
    encode: Callable[[Any], bytes]
    errors: Callable[[Any], list[int]]
    object_budget: int


_codecs: dict[tuple[type[Any], int], _Codec] = {}


def decode(
    message_class: type[T], version: int, data: Buffer, *, position: int = 0, object_budget: int | None = None
) -> T:
    """The message of that class and version in `data` from `position` on; a response must end where the data does.

    Raises ProtocolViolation for bytes that are no such message, ValueError for a version that does not exist.
    """
    codec = _codecs.get((message_class, version)) or prepare(message_class, version)
    # Such messages are small. Copying them once is cheaper than slicing a view for every string, and the result then
    # shares nothing with the receive buffer.
    raw = data if type(data) is bytes else bytes(data)
    try:
        message: T = codec.decode(raw, position, codec.object_budget if object_budget is None else object_budget)
    except ProtocolViolation as violation:
        raise ProtocolViolation(f"{message_class.__name__} v{version}: {violation}") from None
    except (error, IndexError):
        raise ProtocolViolation(f"{message_class.__name__} v{version}: the message ends inside a value") from None
    except UnicodeDecodeError:
        raise ProtocolViolation(f"{message_class.__name__} v{version}: a string is not UTF-8") from None
    return message


def encode(message: object, version: int) -> bytes:
    """The body of the message in that version; fields that the version lacks are left out.

    Raises ValueError for a message the version cannot carry, such as null where it allows none.
    """
    message_class = type(message)
    codec = _codecs.get((message_class, version)) or prepare(message_class, version)
    try:
        return codec.encode(message)
    except (error, AttributeError, TypeError, ValueError) as problem:
        raise ValueError(f"{message_class.__name__} v{version} cannot be encoded: {problem}") from problem


def errors_in(message: object, version: int) -> list[int]:
    """The codes of all errors that the message tells in that version, each as often as it stands there."""
    message_class = type(message)
    codec = _codecs.get((message_class, version)) or prepare(message_class, version)
    return codec.errors(message)


def prepare(message_class: type[Any], version: int) -> _Codec:
    """Compile the codec of that version now, if it has not been, so that no request has to wait for it."""
    key = (message_class, version)
    codec = _codecs.get(key)
    if codec is None:
        layout = message_layout(message_class, version)
        title = f"{message_class.__name__} v{version}"
        # librdkafka 2.16 sends stray bytes behind a Metadata request for all topics, and Kafka ignores them.
        is_request = message_kind(message_class) == "request"
        budget = REQUEST_OBJECT_BUDGET if is_request else RESPONSE_OBJECT_BUDGET
        decoder = compile_decoder(layout, title, ignore_rest=is_request)
        codec = _Codec(decoder, compile_encoder(layout, title), compile_errors(layout, title), budget)
        _codecs[key] = codec
    return codec

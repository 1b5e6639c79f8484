"""The headers of requests and responses, and the length prefix around them.

    request   length i32 | api key i16 | version i16 | correlation id i32 | client id nullable string | [tags] | body
    response  length i32 | correlation id i32 | [tags] | body

Rules: the tagged section is there exactly when the version is flexible, with one exception: a response to ApiVersions
never has it, because the client cannot know yet what the broker speaks. The client id keeps its old 16-bit length even
in flexible versions. A request of an API or version that is not defined is read without the section, which is
enough to answer or to refuse it.

Proved by: tests/unit/wire/test_headers.py, tests/properties/test_message_codec.py
"""

from struct import Struct
from typing import Final, NamedTuple

from martlet.base.errors import ProtocolViolation
from martlet.wire.api_keys import ApiKey, is_flexible
from martlet.wire.primitives import Buffer, read_int32, skip_tagged_fields, write_nullable_string

_REQUEST: Final = Struct(">hhih")
_REQUEST_PREFIX: Final = Struct(">ihhi")
_RESPONSE_PREFIX: Final = Struct(">ii")
_FLEXIBLE_RESPONSE_PREFIX: Final = Struct(">iix")


class RequestHeader(NamedTuple):
    """Who asks what in which version, and where in the frame the body starts."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body_position: int


def read_request_header(frame: Buffer) -> RequestHeader:
    """Read the header at the start of a frame; raises ProtocolViolation when the frame is too short for one."""
    if len(frame) < _REQUEST.size:
        raise ProtocolViolation(f"a frame of {len(frame)} bytes is too short for a request header")
    api_key, version, correlation_id, client_id_bytes = _REQUEST.unpack_from(frame)
    position = _REQUEST.size
    client_id: str | None = None
    if client_id_bytes >= 0:
        end = position + client_id_bytes
        if end > len(frame):
            raise ProtocolViolation(f"the client id claims {client_id_bytes} bytes, more than the frame holds")
        try:
            client_id = str(frame[position:end], "utf-8")
        except UnicodeDecodeError:
            raise ProtocolViolation("the client id is not UTF-8") from None
        position = end
    elif client_id_bytes != -1:
        raise ProtocolViolation(f"the client id claims {client_id_bytes} bytes")
    if is_flexible(api_key, version):
        position = skip_tagged_fields(frame, position)
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def response_prefix(correlation_id: int, api_key: int, version: int, body_size: int) -> bytes:
    """Everything of a response frame that comes before its body of `body_size` bytes."""
    if _response_has_tags(api_key, version):
        return _FLEXIBLE_RESPONSE_PREFIX.pack(body_size + 5, correlation_id)
    return _RESPONSE_PREFIX.pack(body_size + 4, correlation_id)


def encode_request_frame(api_key: int, version: int, correlation_id: int, client_id: str | None, body: Buffer) -> bytes:
    """A whole request as the client sends it, length prefix included."""
    frame = bytearray(_REQUEST_PREFIX.pack(0, api_key, version, correlation_id))
    write_nullable_string(frame, client_id)
    if is_flexible(api_key, version):
        frame.append(0)
    frame += body
    frame[:4] = (len(frame) - 4).to_bytes(4, "big")
    return bytes(frame)


def read_response_header(frame: Buffer, api_key: int, version: int) -> tuple[int, int]:
    """The correlation id of a response frame and the position of its body."""
    correlation_id, position = read_int32(frame, 0)
    if _response_has_tags(api_key, version):
        position = skip_tagged_fields(frame, position)
    return correlation_id, position


def _response_has_tags(api_key: int, version: int) -> bool:
    return api_key != ApiKey.API_VERSIONS and is_flexible(api_key, version)

"""What a message carries so that its holder can say what became of it: from any connection, through any forwarder.

A token names the partition, the message, its holder and the attempt. It ends with the attempt: once the message was
leased again, or the leader of the partition or of its queues' state has changed, the token is refused; a renewal does
not change it. It is no secret and no permission: who may acknowledge is decided by who is asking.

Proved by: tests/unit/wire/test_lease_token.py
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from struct import Struct
from typing import NamedTuple
from zlib import crc32

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId

_FIELDS = Struct(">B16siiqB")
_CHECKSUM = Struct(">I")
_VERSION = 1
_HOLDER_BYTES_MAX = 256


class LeaseToken(NamedTuple):
    """One message in the hands of one holder."""

    topic_id: TopicId
    partition: int
    lease_epoch: int
    offset: int
    attempt: int
    holder: str

    def text(self) -> str:
        """As clients carry it; letters, digits, minus and underscore."""
        fields = (_VERSION, self.topic_id, self.partition, self.lease_epoch, self.offset, self.attempt)
        data = _FIELDS.pack(*fields) + self.holder.encode()
        return urlsafe_b64encode(data + _CHECKSUM.pack(crc32(data))).rstrip(b"=").decode()


def read_token(text: str) -> LeaseToken:
    """The inverse of `text`; ApiError(INVALID_REQUEST) for what is no token, or is one cut short."""
    try:
        raw = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    except (UnicodeEncodeError, Error, ValueError):
        raise _refused("it has characters that no token has") from None
    data, checksum = raw[: -_CHECKSUM.size], raw[-_CHECKSUM.size :]
    if not _FIELDS.size <= len(data) <= _FIELDS.size + _HOLDER_BYTES_MAX or _CHECKSUM.pack(crc32(data)) != checksum:
        raise _refused("it is not whole")
    version, topic_id, partition, lease_epoch, offset, attempt = _FIELDS.unpack_from(data)
    if version != _VERSION:
        raise _refused(f"it has version {version}, and this broker reads {_VERSION}")
    try:
        holder = data[_FIELDS.size :].decode()
    except UnicodeDecodeError:
        raise _refused("its holder is not UTF-8") from None
    return LeaseToken(TopicId(topic_id), partition, lease_epoch, offset, attempt, holder)


def _refused(reason: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, f"the lease token cannot be read: {reason}")

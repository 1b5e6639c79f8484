"""What can go wrong between us and a broker, apart from the broker's own answers (those are `ApiError`).

    MartletError
    └── ClientError           the conversation failed, not the request
        ├── ConnectionFailed  no broker answered at the address: nothing was sent
        ├── ConnectionLost    the connection ended before the answer: the outcome is unknown
        └── RequestTimedOut   no answer in time: the outcome is unknown
    └── OutcomeUnknown        a change was sent and its answer never came; never tried again by itself

The three under ClientError may be tried again; whether that is safe after an unknown outcome is for the caller to
know. `TopicMissing` is the ApiError of a topic that is known not to exist, where Kafka's code alone means "not yet".
"""

import errno
import os
import ssl

from martlet.base.errors import ApiError, ErrorCode, MartletError


class ClientError(MartletError):
    """The conversation with a broker failed."""


class ConnectionFailed(ClientError):
    """No broker could be reached; no request has been sent."""


class ConnectionLost(ClientError):
    """The connection ended while an answer was awaited."""


class RequestTimedOut(ClientError):
    """The broker did not answer in time."""


class OutcomeUnknown(MartletError):
    """A change was sent, but its answer never came: it may have happened or not."""


class TopicUnknown(ApiError):
    """A broker does not know the topic; it may only be new."""

    def __init__(self, topic: str, code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) -> None:
        super().__init__(code, f"there is no topic {topic!r}")
        self.topic = topic


class TopicMissing(TopicUnknown):
    """There is no such topic, said by a broker that would know."""

    @property
    def retriable(self) -> bool:
        return False


class GroupMissing(ApiError):
    """There is no such group."""

    def __init__(self, group: str) -> None:
        super().__init__(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group!r}")
        self.group = group


def reason_of(error: BaseException) -> str:
    """A few lower-case words for a failed connect, without Python's decoration around them."""
    if isinstance(error, TimeoutError) and not error.errno:
        return "no answer in time"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return f"no TLS ({(error.reason or str(error)).replace('_', ' ').lower()})"
    if isinstance(error, OSError):
        # asyncio words its own connect errors; the number, where there is one, gives the plain phrase.
        number = error.errno
        if number is not None and number in errno.errorcode:
            return os.strerror(number).lower()
        return error.strerror or str(error)
    return str(error) or type(error).__name__

"""What the headers of a message say of its delivery: not before, not after, how urgent.

    martlet-deliver-at   milliseconds since 1970      martlet-expire-at   milliseconds since 1970
    martlet-delay-ms     after its timestamp          martlet-expire-ms   after its timestamp
    martlet-priority     one digit, 0 to 9

Rules: read once, when a message is published, and refused there with the reason: a delay that is no number, or longer
than allowed, must never become a delivery at once. Numbers are exact integers, nothing is clamped. What is relative
counts from the message's own timestamp, so that every replica, and a log read again, come to the same instants.

Proved by: tests/unit/queues/test_delivery_terms.py
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.queues.priority import DEFAULT_LEVEL

PREFIX: Final = b"martlet-"
DELIVER_AT: Final = b"martlet-deliver-at"
DELAY_MS: Final = b"martlet-delay-ms"
EXPIRE_AT: Final = b"martlet-expire-at"
EXPIRE_MS: Final = b"martlet-expire-ms"
PRIORITY: Final = b"martlet-priority"

_NAMES: Final = frozenset((DELIVER_AT, DELAY_MS, EXPIRE_AT, EXPIRE_MS, PRIORITY))
_DIGITS_MAX: Final = 15
"""Enough for the year 33,658."""


class DeliveryTerms(NamedTuple):
    """When a message may be delivered, until when, and its level; 0 for an instant that is not set."""

    due_ms: int = 0
    expires_ms: int = 0
    priority: int = DEFAULT_LEVEL


PLAIN: Final = DeliveryTerms()


@dataclass(frozen=True, slots=True)
class DeliveryLimits:
    """What a topic allows; None for no limit."""

    delay_max_ms: int | None = None
    kept_ms: int | None = None
    """How long the log keeps a message for sure; a delivery after that could not be made."""


def read_terms(
    headers: Iterable[tuple[bytes, bytes | None]], timestamp_ms: int, now_ms: int, limits: DeliveryLimits
) -> DeliveryTerms:
    """The terms of one message; ApiError(INVALID_RECORD) when they make no sense or are not allowed."""
    found: dict[bytes, bytes | None] = {}
    for name, value in headers:
        if name in _NAMES:
            if name in found:
                raise _refused(name, value, "it is given twice")
            found[name] = value
    if not found:
        return PLAIN
    due_ms = _instant(found, DELIVER_AT, DELAY_MS, timestamp_ms)
    expires_ms = _instant(found, EXPIRE_AT, EXPIRE_MS, timestamp_ms)
    if due_ms:
        _check_delay(due_ms, now_ms, limits)
    if expires_ms and due_ms >= expires_ms:
        name = EXPIRE_AT if EXPIRE_AT in found else EXPIRE_MS
        raise _refused(name, found[name], "the message would expire before it is due")
    return DeliveryTerms(due_ms, expires_ms, _priority(found))


def _instant(found: dict[bytes, bytes | None], absolute: bytes, relative: bytes, timestamp_ms: int) -> int:
    if absolute in found and relative in found:
        raise _refused(relative, found[relative], f"{absolute.decode()} is given as well")
    if absolute in found:
        return _number(absolute, found[absolute])
    if relative in found:
        return timestamp_ms + _number(relative, found[relative])
    return 0


def _number(name: bytes, value: bytes | None) -> int:
    if value is None or not 0 < len(value) <= _DIGITS_MAX or not value.isdigit():
        raise _refused(name, value, f"a whole number of milliseconds with at most {_DIGITS_MAX} digits is expected")
    return int(value)


def _check_delay(due_ms: int, now_ms: int, limits: DeliveryLimits) -> None:
    delay_ms = due_ms - now_ms
    if limits.delay_max_ms is not None and delay_ms > limits.delay_max_ms:
        reason = f"due in {delay_ms} ms, and the topic allows {limits.delay_max_ms} ms (martlet.delay.max.ms)"
        raise ApiError(ErrorCode.INVALID_RECORD, reason)
    if limits.kept_ms is not None and delay_ms > limits.kept_ms:
        reason = f"due in {delay_ms} ms, and the topic keeps its messages for {limits.kept_ms} ms only (retention.ms)"
        raise ApiError(ErrorCode.INVALID_RECORD, reason)


def _priority(found: dict[bytes, bytes | None]) -> int:
    if PRIORITY not in found:
        return DEFAULT_LEVEL
    value = found[PRIORITY]
    if value is None or len(value) != 1 or not value.isdigit():
        raise _refused(PRIORITY, value, "one digit from 0 to 9 is expected")
    return int(value)


def _refused(name: bytes, value: bytes | None, reason: str) -> ApiError:
    shown = "null" if value is None else repr(value[:40].decode("utf-8", "replace"))
    return ApiError(ErrorCode.INVALID_RECORD, f"the header {name.decode()} is {shown}: {reason}")

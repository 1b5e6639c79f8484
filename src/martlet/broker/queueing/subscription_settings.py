"""What the settings of a subscription mean: checked when it is made or altered, read when its queues are.

A share group is a subscription that sets nothing of its own: its settings are the group's (`share.…`), or the broker's.
What a subscription sets itself wins.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.partitions.delivery_features import DeliveryFeatures
from martlet.broker.partitions.watermarks import READ_COMMITTED, READ_UNCOMMITTED
from martlet.cluster.records import SubscriptionRecord
from martlet.configs.effective import EffectiveConfig
from martlet.queues.engine import QueueOptions
from martlet.queues.features import AGE_MS_DEFAULT, Features
from martlet.queues.filters import Filter, FilterMistake
from martlet.queues.key_order import PARKED_MAX
from martlet.queues.retry import ATTEMPTS_MAX, Backoff, RetryPolicy

LEASE_MS_MAX: Final = 12 * 3_600_000
_DELAY_MS_MAX: Final = 7 * 24 * 3_600_000
_WINDOW_MIN, _WINDOW_MAX = 100, 1_000_000
_EARLIEST, _LATEST = "earliest", "latest"
_NUMBER_LENGTH_MAX: Final = 15


@dataclass(frozen=True, slots=True)
class LookSettings:
    """What a subscription wants to know of its messages."""

    filter: str = ""
    has_priority: bool | None = None
    has_key_order: bool | None = None
    """None: as its topic's features say."""
    expire_after_ms: int | None = None
    age_ms: int = AGE_MS_DEFAULT
    parked_max: int = PARKED_MAX


@dataclass(frozen=True, slots=True)
class SubscriptionSettings:
    """In force for one subscription."""

    queue: QueueOptions
    isolation: int
    starts_at_ms: int | None
    """The time from which on messages belong to it; None: all there are."""
    dead_letter_topic: str = ""
    look: LookSettings = LookSettings()


def _number(least: int, most: int) -> Callable[[str, str], int]:
    def read(name: str, text: str) -> int:
        if not (
            0 < len(text) <= _NUMBER_LENGTH_MAX and text.isascii() and text.isdigit() and least <= int(text) <= most
        ):
            raise _refused(name, text, f"a whole number from {least} to {most} is expected")
        return int(text)

    return read


def _one_of(*words: str) -> Callable[[str, str], str]:
    def read(name: str, text: str) -> str:
        if text not in words:
            raise _refused(name, text, f"one of {', '.join(words)} is expected")
        return text

    return read


def _start(name: str, text: str) -> str:
    if text not in (_EARLIEST, _LATEST) and not (text.isascii() and text.isdigit() and len(text) <= _NUMBER_LENGTH_MAX):
        raise _refused(name, text, "earliest, latest or milliseconds since 1970 are expected")
    return text


def _text(name: str, text: str) -> str:
    return text


def _filter(name: str, text: str) -> str:
    try:
        Filter(text)
    except FilterMistake as mistake:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{name}: {mistake}") from mistake
    return text


READERS: Final[Mapping[str, Callable[[str, str], object]]] = {
    "start": _start,
    "lease.ms": _number(100, LEASE_MS_MAX),
    "attempts.max": _number(1, ATTEMPTS_MAX),
    "backoff": _one_of(*(policy.value for policy in Backoff)),
    "backoff.ms": _number(1, _DELAY_MS_MAX),
    "backoff.max.ms": _number(1, _DELAY_MS_MAX),
    "dead.letter.topic": _text,
    "isolation": _one_of("read_committed", "read_uncommitted"),
    "window.max": _number(_WINDOW_MIN, _WINDOW_MAX),
    "strays.max": _number(1, _WINDOW_MAX),
    "filter": _filter,
    "priority": _one_of("on", "off"),
    "priority.age.ms": _number(1, _DELAY_MS_MAX),
    "key.order": _one_of("on", "off"),
    "parked.max": _number(1, _WINDOW_MAX),
    "expire.after.ms": _number(1, 10**_NUMBER_LENGTH_MAX),
}
"""The names a subscription may set, and what reads each."""


def check_settings(settings: Mapping[str, str]) -> None:
    """ApiError(INVALID_CONFIG) naming what is wrong."""
    for name, text in settings.items():
        read = READERS.get(name)
        if read is None:
            known = ", ".join(READERS)
            raise ApiError(ErrorCode.INVALID_CONFIG, f"a subscription has no setting {name[:60]!r}; there are {known}")
        read(name, text)
    try:
        _retry(settings, 5)
    except ValueError as error:
        raise ApiError(ErrorCode.INVALID_CONFIG, str(error)) from error


def read_settings(record: SubscriptionRecord, group: EffectiveConfig) -> SubscriptionSettings:
    """What is in force; a setting that this version does not know is left alone."""
    own = record.settings

    def number(name: str, default: int) -> int:
        text = own.get(name, "")
        return int(text) if text else default

    is_committed = own.get("isolation", group.text("share.isolation.level")) == "read_committed"
    dead_letters = own.get("dead.letter.topic", "")
    options = QueueOptions(
        lease_ms=number("lease.ms", group.number("share.record.lock.duration.ms")),
        window_max=number("window.max", max(10_000, group.number("share.partition.max.record.locks"))),
        strays_max=number("strays.max", 10_000),
        retry=_retry(own, group.number("share.delivery.count.limit")),
        has_dead_letters=bool(dead_letters),
    )
    start = own.get("start", group.text("share.auto.offset.reset"))
    return SubscriptionSettings(
        options,
        READ_COMMITTED if is_committed else READ_UNCOMMITTED,
        _starts_at_ms(start, record.created_at_ms),
        dead_letters,
        _look(own),
    )


def _look(own: Mapping[str, str]) -> LookSettings:
    return LookSettings(
        own.get("filter", ""),
        None if "priority" not in own else own["priority"] == "on",
        None if "key.order" not in own else own["key.order"] == "on",
        int(own["expire.after.ms"]) if "expire.after.ms" in own else None,
        int(own.get("priority.age.ms", AGE_MS_DEFAULT)),
        int(own.get("parked.max", PARKED_MAX)),
    )


def features_of(look: LookSettings, features: DeliveryFeatures | None) -> Features | None:
    """What the queue of a subscription looks for in a partition; None where it looks at no message."""
    words = features.topic.features if features is not None else frozenset[str]()
    schedule = features.schedule if features is not None else None
    made = Features(
        filter=Filter(look.filter) if look.filter else None,
        has_priority="priority" in words if look.has_priority is None else look.has_priority,
        has_key_order="key-order" in words if look.has_key_order is None else look.has_key_order,
        schedule=schedule,
        expire_after_ms=look.expire_after_ms,
        age_ms=look.age_ms,
        parked_max=look.parked_max,
    )
    looks = made.filter or made.has_priority or made.has_key_order or made.expire_after_ms or "expiry" in words
    return made if looks or schedule is not None else None


def _retry(own: Mapping[str, str], attempts_max: int) -> RetryPolicy:
    default = RetryPolicy()
    delay_ms = int(own.get("backoff.ms", default.delay_ms))
    return RetryPolicy(
        attempts_max=int(own.get("attempts.max", attempts_max)),
        backoff=Backoff(own.get("backoff", default.backoff)),
        delay_ms=delay_ms,
        delay_max_ms=int(own.get("backoff.max.ms", max(default.delay_max_ms, delay_ms))),
    )


def _starts_at_ms(start: str, created_at_ms: int) -> int | None:
    if start == _EARLIEST:
        return None
    if start.isdigit():
        return int(start)
    return created_at_ms - _duration_ms(start) if start.startswith("by_duration:") else created_at_ms


def _duration_ms(text: str) -> int:
    """Of Kafka's `by_duration:PnDTnHnMn.nS`; 0 for what is none."""
    days, _, times = text.removeprefix("by_duration:P").partition("T")
    total, digits = 0.0, ""
    units = {"H": 3_600_000, "M": 60_000, "S": 1_000}
    for part, scale in ((days, {"D": 86_400_000}), (times, units)):
        for letter in part:
            if letter in scale:
                total += float(digits or 0) * scale[letter]
                digits = ""
            elif letter.isdigit() or letter == ".":
                digits += letter
    return int(total)


def _refused(name: str, text: str, expected: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_CONFIG, f"{name}={text[:60]!r}: {expected}")

"""What one configuration is: its type, default, allowed values, explanation, and the names it inherits from.

Rules: only the shape of a configuration and the reading of one value live here; the tables are in `config_tables.py`,
what wins over what is in `configs.py`.

Values are kept as the text a client sent, once it has been read without complaint, because that is how they
travel and are shown; code asks for the typed value.
"""

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Final

from martlet.base.errors import ApiError, ErrorCode

Value = bool | int | float | str | tuple[str, ...] | None
"""A typed value; None is a configuration without a value."""

Check = Callable[[Value], str | None]
"""Says what would be allowed, as the rest of a sentence, when a value is not."""

VALUE_LENGTH_MAX: Final = 32_768
"""Longest text of one value, so that all settings of a topic fit one commit of the metadata store."""

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1


class ConfigType(IntEnum):
    """How a value is to be read; the numbers are the protocol's."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


class ConfigSource(IntEnum):
    """Where a value in force comes from; the numbers are the protocol's."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


class Effect(StrEnum):
    """What a configuration does in Martlet; the words are those of docs/settings.md."""

    HONOURED = "honoured"
    NONE = "no effect"
    """Every value that Kafka takes is stored and shown; nothing here depends on it."""
    REFUSED = "refused"
    """Only the value that says what Martlet does anyway is taken, or none at all."""


@dataclass(frozen=True, slots=True)
class Inherited:
    """A broker's setting that a topic's takes its default from, in that many of the topic's units."""

    name: str
    factor: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigDef:
    """One configuration of topics, brokers or groups."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    check: Check | None = None
    sensitive: bool = False
    read_only: bool = False
    inherits: tuple[Inherited, ...] = ()
    """Where the value comes from when it is not set itself; the first that has one wins."""
    only_when_set: bool = False
    """Not shown without a value: it informs about something that may not exist."""
    effect: Effect = Effect.HONOURED

    def read(self, text: str | None) -> Value:
        """The typed value; raises INVALID_CONFIG with a sentence that says what is allowed."""
        if text is None:
            return None
        if len(text) > VALUE_LENGTH_MAX:
            raise self._refuse(f"at most {VALUE_LENGTH_MAX} characters", f"{text[:40]}…")
        value = self._parse(text.strip() if self.type is not ConfigType.PASSWORD else text)
        allowed = self.check(value) if self.check is not None else None
        if allowed is not None:
            raise self._refuse(allowed, text)
        return value

    def _parse(self, text: str) -> Value:
        if self.type is ConfigType.BOOLEAN:
            if text.lower() not in ("true", "false"):
                raise self._refuse("true or false", text)
            return text.lower() == "true"
        if self.type in _WHOLE_LIMITS:
            return self._parse_whole(text, _WHOLE_LIMITS[self.type])
        if self.type is ConfigType.DOUBLE:
            return self._parse_real(text)
        if self.type is ConfigType.LIST:
            return tuple(word.strip() for word in text.split(",")) if text else ()
        return text

    def _parse_whole(self, text: str, limit: int) -> int:
        digits = text.removeprefix("-")
        # Twenty digits hold every 64-bit number; int() of megabytes would not be cheap.
        if not (digits.isascii() and digits.isdigit() and len(digits) <= 20):
            raise self._refuse("a whole number", text)
        value = int(text)
        if not -limit - 1 <= value <= limit:
            raise self._refuse(f"a whole number from {-limit - 1} to {limit}", text)
        return value

    def _parse_real(self, text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise self._refuse("a number", text) from None

    def _refuse(self, allowed: str, text: str) -> ApiError:
        shown = "(hidden)" if self.sensitive else repr(text if len(text) <= 80 else f"{text[:80]}…")
        return ApiError(ErrorCode.INVALID_CONFIG, f"{self.name} must be {allowed}, not {shown}")


_WHOLE_LIMITS: Final = {ConfigType.SHORT: 2**15 - 1, ConfigType.INT: INT_MAX, ConfigType.LONG: LONG_MAX}


# --- checks


def between(low: float, high: float | None = None) -> Check:
    """A number not below `low` and not above `high`."""
    allowed = f"at least {low}" if high is None else f"from {low} to {high}"

    def check(value: Value) -> str | None:
        fits = isinstance(value, int | float) and value >= low and (high is None or value <= high)
        return None if fits else allowed

    return check


def either(single: int, low: int, high: int) -> Check:
    """That one number, or one from `low` to `high`."""

    def check(value: Value) -> str | None:
        fits = isinstance(value, int) and (value == single or low <= value <= high)
        return None if fits else f"{single} or from {low} to {high}"

    return check


def one_of(*words: str) -> Check:
    """Exactly one of the words."""
    allowed = f"one of {', '.join(words)}" if len(words) > 1 else words[0]

    def check(value: Value) -> str | None:
        return None if value in words else allowed

    return check


def any_of(*words: str) -> Check:
    """None, some or all of the words, each once."""
    allowed = f"a list of {', '.join(words)}, each at most once, or empty"

    def check(value: Value) -> str | None:
        chosen = value if isinstance(value, tuple) else ()
        return None if len(set(chosen)) == len(chosen) and set(chosen) <= set(words) else allowed

    return check


def only(value_allowed: Value, sentence: str) -> Check:
    """The one value that Martlet can honour; the sentence says which and why."""

    def check(value: Value) -> str | None:
        return None if value == value_allowed else sentence

    return check


def unset(reason: str) -> Check:
    """No value at all, for the reason given."""

    def check(value: Value) -> str | None:
        return f"left unset ({reason})"

    return check


def throttled_replicas(value: Value) -> str | None:
    """`*`, or a list of partition:broker pairs."""
    words = value if isinstance(value, tuple) else ()
    if words in ((), ("*",)):
        return None
    for word in words:
        partition, _, broker = word.partition(":")
        if not (partition.isascii() and partition.isdigit() and broker.isascii() and broker.isdigit()):
            return "empty, * or a list of partition:broker pairs"
    return None

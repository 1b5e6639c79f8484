"""The options of one reader or writer, taken by name and turned into values; every refusal names the option.

Rules: no option means anything here. Names are compared without regard to case, as Spark does.
"""

import json
from collections.abc import Callable, Mapping
from typing import Final

from martlet.base.addresses import parse_bootstrap
from martlet.base.ids import TopicPartition
from martlet.spark.failures import OptionRefused

_TRUE: Final = frozenset({"true", "yes", "1"})
_FALSE: Final = frozenset({"false", "no", "0"})
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


class OptionValues:
    """What was given by `.option(…)`, checked to be options at all."""

    def __init__(self, given: Mapping[str, str], refusal: Callable[[str], str | None]) -> None:
        for name in given:
            reason = refusal(name)
            if reason is not None:
                raise OptionRefused(reason)
        self._given = {name.lower(): value for name, value in given.items()}

    def text(self, name: str) -> str | None:
        """The value, None when it was not given."""
        return self._given.get(name.lower())

    def one_of(self, *names: str) -> str | None:
        """The value of an option that has several names; they may not contradict each other."""
        found = {name: value for name in names if (value := self.text(name)) is not None}
        if len(set(found.values())) > 1:
            raise OptionRefused(f"{' and '.join(found)} mean the same but say different things; give one of them")
        return next(iter(found.values()), None)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in choices:
            raise OptionRefused(f"{name} is one of {', '.join(choices)}, not {value!r}")
        return value.lower()

    def yes_or_no(self, name: str, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() in _TRUE:
            return True
        if value.lower() in _FALSE:
            return False
        raise OptionRefused(f"{name} is true or false, not {value!r}")

    def number(self, name: str, default: int | None = None, *, least: int = 1) -> int | None:
        value = self.text(name)
        if value is None:
            return default
        return _whole_number(name, value, least)

    def duration_ms(self, name: str, default_ms: int) -> int:
        """As Spark writes durations: 500ms, 30s, 15m, 2h, 1d; a bare number is milliseconds."""
        value = self.text(name)
        if value is None:
            return default_ms
        text = value.strip().lower()
        digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
        unit = text[len(digits) :].strip() or "ms"
        if unit not in _UNITS_MS or not digits.isascii() or not digits.isdigit():
            raise OptionRefused(f"{name} is a duration like 500ms, 30s, 15m or 2h, not {value!r}")
        return int(digits) * _UNITS_MS[unit]

    def by_partition(self, name: str, *, least: int) -> dict[TopicPartition, int] | None:
        """JSON as Spark's Kafka source has it: {"orders": {"0": 23, "1": -2}}."""
        value = self.text(name)
        if value is None:
            return None
        found: dict[TopicPartition, int] = {}
        for topic, numbers in _json_object(name, value, '{"orders": {"0": 23, "1": -2}}').items():
            if not isinstance(numbers, dict):
                raise OptionRefused(f"{name}: {topic!r} is followed by numbers for its partitions, like {{'0': 23}}")
            for partition, number in numbers.items():
                if partition == "topicId":
                    # What a stream's checkpoint or progress says besides the numbers.
                    continue
                if not isinstance(number, int) or isinstance(number, bool) or number < least:
                    raise OptionRefused(f"{name}: {number!r} for partition {partition} of {topic!r} is no whole number")
                found[TopicPartition(topic, _whole_number(name, partition, 0))] = number
        return found

    def partition_lists(self, name: str) -> dict[str, list[int]] | None:
        """JSON as Spark's Kafka source has it: {"orders": [0, 1]}."""
        value = self.text(name)
        if value is None:
            return None
        example = '{"orders": [0, 1]}'
        found: dict[str, list[int]] = {}
        for topic, numbers in _json_object(name, value, example).items():
            if not isinstance(numbers, list) or not numbers:
                raise OptionRefused(f"{name} is JSON like {example}, not {value!r}")
            found[topic] = sorted({_whole_number(name, str(number), 0) for number in numbers})
        return found

    def bootstrap(self) -> str:
        """Where the brokers are; required."""
        value = self.one_of("kafka.bootstrap.servers", "bootstrap")
        if not value:
            raise OptionRefused('where is the broker? Give kafka.bootstrap.servers, like "127.0.0.1:9092"')
        try:
            parse_bootstrap(value)
        except ValueError as error:
            raise OptionRefused(f"kafka.bootstrap.servers: {error}") from error
        return value

    def check_security(self) -> None:
        protocol = self.text("kafka.security.protocol")
        if protocol is not None and protocol.upper() != "PLAINTEXT":
            raise OptionRefused(
                f"kafka.security.protocol {protocol} asks for authentication or TLS, which Martlet does not offer yet; "
                "the only protocol is PLAINTEXT"
            )


def _whole_number(name: str, text: str, least: int) -> int:
    digits = text.strip().removeprefix("-")
    if not digits.isascii() or not digits.isdigit() or int(text) < least:
        raise OptionRefused(f"{name} is a whole number of at least {least}, not {text!r}")
    return int(text)


def _json_object(name: str, text: str, example: str) -> dict[str, object]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise OptionRefused(f"{name} is JSON like {example}, not {text!r}: {error}") from error
    if not isinstance(value, dict):
        raise OptionRefused(f"{name} is JSON like {example}, not {text!r}")
    return value

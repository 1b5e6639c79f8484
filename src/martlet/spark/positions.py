"""Where reading begins and where it ends, as options say it: for all partitions alike or for each of its own.

Rules: values and their parsing; `planning` turns them into offsets. The precedence is that of Spark's Kafka source:
an instant for all, then instants by partition, then offsets.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from martlet.base.ids import TopicPartition
from martlet.client.offsets import EARLIEST, LATEST
from martlet.spark.failures import OptionRefused
from martlet.spark.option_values import OptionValues

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


@dataclass(frozen=True, slots=True)
class EndOfLog:
    """The first message there is (EARLIEST) or the end (LATEST), in every partition."""

    which: int


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition, which may also be EARLIEST or LATEST."""

    offsets: Mapping[TopicPartition, int]
    option: str


@dataclass(frozen=True, slots=True)
class AtInstant:
    """The first message at or after an instant, in every partition."""

    instant_ms: int
    none_means_end: bool


@dataclass(frozen=True, slots=True)
class AtInstants:
    """The first message at or after an instant of its own for every partition."""

    instants_ms: Mapping[TopicPartition, int]
    none_means_end: bool
    option: str


Position = EndOfLog | AtOffsets | AtInstant | AtInstants


def parse_start(options: OptionValues, *, default: int) -> Position:
    """Where to begin. By default a batch begins with the earliest message and a stream at the latest."""
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
    return _parse(options, "starting", default, none_means_end=strategy == "latest")


def parse_end(options: OptionValues) -> Position:
    """Where a batch ends; an instant that no message has reached means the end of the log."""
    return _parse(options, "ending", LATEST, none_means_end=True)


def _parse(options: OptionValues, side: str, default: int, *, none_means_end: bool) -> Position:
    instant = options.number(f"{side}Timestamp", least=0)
    if instant is not None:
        return AtInstant(instant, none_means_end)
    instants = options.by_partition(f"{side}OffsetsByTimestamp", least=0)
    if instants is not None:
        return AtInstants(instants, none_means_end, f"{side}OffsetsByTimestamp")
    name = f"{side}Offsets"
    text = options.text(name)
    if text is None:
        return EndOfLog(default)
    if not text.lstrip().startswith("{"):
        return _word(name, text, side)
    offsets = options.by_partition(name, least=EARLIEST) or {}
    if side == "ending" and EARLIEST in offsets.values():
        raise OptionRefused(f"{name} cannot be -2 (earliest): nothing lies before that")
    return AtOffsets(offsets, name)


def _word(name: str, text: str, side: str) -> EndOfLog:
    which = _WORDS.get(text.strip().lower())
    if which is None:
        words = "earliest, latest" if side == "starting" else "latest"
        raise OptionRefused(f'{name} is {words}, or JSON like {{"orders": {{"0": 23, "1": -2}}}}, not {text!r}')
    if side == "ending" and which == EARLIEST:
        raise OptionRefused(f"{name} cannot be earliest: nothing lies before that")
    return EndOfLog(which)

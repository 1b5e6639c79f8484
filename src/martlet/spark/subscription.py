"""Which topics and partitions are read: named topics, a pattern over names, or partitions one by one.

Rules: values and matching only; `planning` asks the cluster what there is.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from martlet.base.ids import TopicPartition
from martlet.spark.failures import OptionRefused
from martlet.spark.option_values import OptionValues


@dataclass(frozen=True, slots=True)
class NamedTopics:
    """All partitions of these topics, those added later too."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """All partitions of all topics whose whole name matches, those created later too; internal topics never."""

    pattern: str

    def matching(self, names: Iterable[str]) -> list[str]:
        compiled = re.compile(self.pattern)
        return [name for name in names if compiled.fullmatch(name)]


@dataclass(frozen=True, slots=True)
class AssignedPartitions:
    """These partitions and no others."""

    partitions: tuple[TopicPartition, ...]

    @property
    def topics(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(partition.topic for partition in self.partitions))


Subscription = NamedTopics | TopicPattern | AssignedPartitions


def parse_subscription(options: OptionValues) -> Subscription:
    """Exactly one of subscribe, subscribePattern and assign."""
    given = [name for name in ("subscribe", "subscribePattern", "assign") if options.text(name) is not None]
    if len(given) != 1:
        what = f"{' and '.join(given)} were given" if given else "none was given"
        raise OptionRefused(f"name what to read with exactly one of subscribe, subscribePattern and assign; {what}")
    names = options.text("subscribe")
    if names is not None:
        topics = tuple(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
        if not topics:
            raise OptionRefused('subscribe names no topic; write subscribe "orders" or "orders,payments"')
        return NamedTopics(topics)
    pattern = options.text("subscribePattern")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionRefused(f"subscribePattern {pattern!r} is not a regular expression: {error}") from error
        return TopicPattern(pattern)
    return AssignedPartitions(_assigned(options.partition_lists("assign") or {}))


def _assigned(lists: Mapping[str, Iterable[int]]) -> tuple[TopicPartition, ...]:
    partitions = tuple(TopicPartition(topic, number) for topic, numbers in lists.items() for number in numbers)
    if not partitions:
        raise OptionRefused('assign names no partition; write {"orders": [0, 1]}')
    return partitions

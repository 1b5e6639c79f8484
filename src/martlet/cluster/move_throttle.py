"""The throttle on moves, under Kafka's names: which replicas are slowed down, and to what rate.

Rules: pure. A topic's setting names the replicas, a broker's setting is the rate at which it receives those named.
Both can be changed while partitions move. A replica in sync is never slowed down although a setting names it: the
follower sees to that.

Martlet slows down the receiving side. The twin settings for the sending side are stored, because Kafka's tools
set both, and do nothing.

Proved by: tests/unit/cluster/test_move_throttle.py
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from martlet.base.ids import BrokerId, TopicPartition
from martlet.configs.definition import LONG_MAX, VALUE_LENGTH_MAX
from martlet.configs.effective import BrokerLayers, effective_broker_config

THROTTLED_REPLICAS: Final = "follower.replication.throttled.replicas"
THROTTLED_RATE: Final = "follower.replication.throttled.rate"

_ALL: Final = "*"


def throttled_rate(layers: BrokerLayers) -> int:
    """Bytes per second for all copies that a broker with these settings receives throttled; 0: no limit."""
    rate = effective_broker_config(layers).number(THROTTLED_RATE)
    return 0 if rate == LONG_MAX else rate


def is_throttled(named: str, partition: int, broker: BrokerId) -> bool:
    """Whether a topic's setting names this copy."""
    words = _words(named)
    return _ALL in words or f"{partition}:{broker}" in words


@lru_cache(maxsize=256)
def _words(named: str) -> frozenset[str]:
    # Asked for every copy at every fetch, and a setting may name thousands.
    return frozenset(word.strip() for word in named.split(","))


def name_copies(copies: Iterable[tuple[TopicPartition, int]]) -> dict[str, str]:
    """For each topic the setting that names these copies; all of a topic's where they are too many to name."""
    words: dict[str, list[str]] = {}
    for where, broker in sorted(set(copies)):
        words.setdefault(where.topic, []).append(f"{where.partition}:{broker}")
    named = {topic: ",".join(pairs) for topic, pairs in words.items()}
    return {topic: text if len(text) <= VALUE_LENGTH_MAX else _ALL for topic, text in named.items()}

"""What of queues is exported: how many messages of each subscription are where, on this broker.

Rule: the number of series is bounded, whatever subscriptions there are: those past the limit are counted together.

Proved by: tests/unit/broker/queueing/test_queue_host.py
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from martlet.base.errors import ApiError
from martlet.broker.queueing.host import QueueHost
from martlet.observe.metrics import OTHER_TOPICS, BrokerMetrics

_OTHER: Final = OTHER_TOPICS
_STATES: Final = ("waiting", "leased", "closing", "backing_off", "copying")


def watch_queues(queues: QueueHost, metrics: BrokerMetrics, subscriptions_max: int) -> None:
    """Export the depths of the queues served here."""

    def messages() -> Iterable[tuple[tuple[str, ...], float]]:
        counts: Counter[tuple[str, ...]] = Counter()
        named: dict[str, str] = {}
        for _, _, name, queue in queues.served():
            label = named.setdefault(name, name if len(named) < subscriptions_max else _OTHER)
            try:
                depth = queue.depth()
            except ApiError:
                continue  # it has just moved to another broker
            for state in _STATES:
                counts[label, state] += getattr(depth, state)
        return sorted((labels, float(count)) for labels, count in counts.items())

    text = "Messages of subscriptions, by where they are; those of queues served by this broker."
    metrics.watch_table("martlet_queue_messages", text, ("subscription", "state"), messages)
    copied = "Messages copied to dead-letter topics by this process."
    metrics.watch("martlet_queue_dead_letters", copied, lambda: float(queues.office.copied))
    metrics.watch(
        "martlet_queue_pairs", "Partitions whose queues this broker serves.", lambda: float(queues.pair_count)
    )

"""Which brokers hold a new partition, when nobody says so.

Pure arithmetic: leaders go round the brokers from a starting point that differs per topic, and the followers of
each next round are shifted by one, so that the load of a lost broker spreads over all others.

Proved by: tests/unit/cluster/test_placement.py
"""

from collections.abc import Sequence

from martlet.base.ids import BrokerId
from martlet.base.invariant import invariant


def place_replicas(
    brokers: Sequence[BrokerId], *, indexes: range, replication_factor: int, start: int
) -> list[tuple[BrokerId, ...]]:
    """The replicas of each partition in `indexes`, preferred leader first; `start` is any number."""
    count = len(brokers)
    invariant(0 < replication_factor <= count, "there are enough brokers for the replicas")
    placed: list[tuple[BrokerId, ...]] = []
    for index in indexes:
        first = start + index
        step = first // count
        followers = (1 + (step + follower) % (count - 1) for follower in range(replication_factor - 1))
        placed.append(tuple(brokers[(first + distance) % count] for distance in (0, *followers)))
    return placed

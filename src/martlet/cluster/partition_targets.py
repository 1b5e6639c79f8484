"""Where a selection of partitions is to lie when an operator names the brokers, and with how many replicas.

Rules: pure. The single steps are those of `replica_balance.py`; here they are put together into one wish per partition,
which AlterPartitionReassignments then takes.

How it works: first the number of copies is brought to what is wanted, then the brokers that are not named are
emptied of the selection, and at last copies and leaders are evened out over those that are named. Partitions
that lie as they should are left alone.

Invariants:
CLS-26 every wished set names only the brokers given, and has the size asked for, else the size it had;
CLS-27 asking again when all moves are done gives no move.

Proved by: tests/unit/cluster/test_partition_targets.py, tests/properties/test_placement.py
"""

from collections import Counter
from collections.abc import Collection, Sequence

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.cluster.placement import Replicas, Site
from martlet.cluster.replica_balance import Moves, Placed, plan_balance, plan_emptying, plan_replication_factor


def plan_onto(placed: Placed, sites: Sequence[Site], *, factor: int | None = None) -> Moves:
    """Moves that bring these partitions onto exactly these brokers, evenly, with `factor` copies each if given."""
    brokers = {site.broker for site in sites}
    _check_room(placed, sites, factor)
    wished: Moves = {partition: _named_first(replicas, brokers) for partition, replicas in placed.items()}
    if factor is not None:
        load = Counter(broker for replicas in wished.values() for broker in replicas)
        wished |= plan_replication_factor(wished, factor, sites, load)
    for broker in sorted({broker for replicas in wished.values() for broker in replicas} - brokers):
        wished |= plan_emptying(wished, broker, sites)
    wished |= plan_balance(wished, sites)
    return {partition: replicas for partition, replicas in wished.items() if tuple(placed[partition]) != replicas}


def copies_to_make(before: Collection[BrokerId], after: Collection[BrokerId]) -> list[BrokerId]:
    """The brokers to which a move from here to there copies the partition."""
    return [broker for broker in after if broker not in before]


def _named_first(replicas: Sequence[BrokerId], brokers: Collection[BrokerId]) -> Replicas:
    """When copies become fewer the first one stays, so let that be one which may stay."""
    return tuple(sorted(replicas, key=lambda broker: broker not in brokers))


def _check_room(placed: Placed, sites: Sequence[Site], factor: int | None) -> None:
    if not sites:
        raise ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "no broker is named to move the partitions to")
    if factor is not None and factor > len(sites):
        raise ApiError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas need as many brokers, and {len(sites)} can take them",
        )
    if factor is None and placed:
        partition, replicas = max(placed.items(), key=lambda one: len(one[1]))
        if len(replicas) > len(sites):
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"{partition} has {len(replicas)} replicas and cannot lie on {len(sites)} brokers: name more of them "
                "or lower the number of replicas",
            )

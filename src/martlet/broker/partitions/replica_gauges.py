"""Metrics of the replicas on one broker, read from the partition table when they are scraped.

Each partition is counted by its leader only, so the sum over all brokers is the cluster's; what has no leader is
counted by every broker that holds a replica.
"""

from martlet.broker.partitions.partition_table import PartitionTable
from martlet.log.log_directory import LogDirectory
from martlet.observe.metrics import BrokerMetrics
from martlet.replication.leader import LeaderReplica


def watch_replicas(table: PartitionTable, logs: LogDirectory, metrics: BrokerMetrics) -> None:
    """Export the gauges; called once, by the wiring."""
    watch = metrics.watch
    watch("martlet_led_partitions", "Partitions with a log that this broker leads.", lambda: len(table.led()))
    watch("martlet_followed_partitions", "Partitions this broker copies.", lambda: len(table.following()))
    watch(
        "martlet_under_replicated_partitions",
        "Partitions led here of which a replica is not in sync.",
        lambda: sum(leader.is_under_replicated for leader in _leaders(table)),
    )
    watch(
        "martlet_under_min_in_sync_partitions",
        "Partitions led here with fewer replicas in sync than acks=all needs.",
        lambda: sum(not leader.has_enough_in_sync for leader in _leaders(table)),
    )
    watch(
        "martlet_offline_partitions",
        "Partitions with a replica here that no broker leads, or whose log cannot be used.",
        lambda: count_offline(table, logs),
    )
    watch(
        "martlet_damaged_partitions",
        "Partitions whose replica here could not be read somewhere, as far as is known since the start.",
        lambda: len(table.damage.names),
    )
    watch(
        "martlet_replica_lag_messages",
        "Messages by which the slowest in-sync follower is behind this broker.",
        lambda: _largest_lag(table),
    )


def count_offline(table: PartitionTable, logs: LogDirectory) -> int:
    """Replicas here of partitions without a leader, or whose log cannot be used."""
    hosted = table.open_partitions()
    idle = [one for one in hosted if one.offline or (one.leader is None and one.follower is None)]
    return len(idle) + len(logs.failures)


def _leaders(table: PartitionTable) -> list[LeaderReplica]:
    return [partition.leader for partition in table.led() if partition.leader is not None]


def _largest_lag(table: PartitionTable) -> int:
    lags = [
        partition.log.end_offset - progress.end_offset
        for partition in table.led()
        if partition.leader is not None
        for progress in partition.leader.followers()
        if progress.member in partition.leader.in_sync.committed
    ]
    return max(lags, default=0)

"""From the broker's settings to the limits of the groups machine, and from its machines to what operators see."""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from martlet.broker.coordinators.group_coordinator import GroupCoordinator
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.cluster.image import MetadataImage
from martlet.groups.ports import ConsumerTimes, GroupsOptions
from martlet.observe.metrics import BrokerMetrics

_MINUTE_MS: Final = 60_000
_ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"


def group_options(
    settings: BrokerSettings, consumer_times_of: Callable[[str], ConsumerTimes | None] = lambda group_id: None
) -> GroupsOptions:
    """What the settings say about groups."""
    return GroupsOptions(
        group_max_size=settings.group_max_size,
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        offset_metadata_max=settings.offset_metadata_max,
        offsets_retention_ms=settings.offsets_retention_minutes * _MINUTE_MS,
        consumer_max_size=settings.consumer_group_max_size,
        consumer_session_timeout_ms=settings.consumer_group_session_timeout_ms,
        consumer_heartbeat_interval_ms=settings.consumer_group_heartbeat_interval_ms,
        consumer_times_of=consumer_times_of,
    )


def consumer_times(image: MetadataImage, settings: TopicSettings) -> Callable[[str], ConsumerTimes | None]:
    """What groups set themselves, and what was set for all of them at run time."""

    def times_of(group_id: str) -> ConsumerTimes | None:
        layers = settings.layers()
        if not (
            image.group_configs(group_id)
            or _ASSIGNMENT_INTERVAL in layers.dynamic_broker
            or _ASSIGNMENT_INTERVAL in layers.dynamic_default
        ):
            return None
        config = settings.group_config(group_id)
        return ConsumerTimes(
            config.number("consumer.session.timeout.ms"),
            config.number("consumer.heartbeat.interval.ms"),
            config.number("consumer.assignment.interval.ms"),
        )

    return times_of


def watch_groups(groups: GroupCoordinator, metrics: BrokerMetrics) -> None:
    """Export how many groups and waiting requests there are; `group_lag.py` has what there is for each group."""

    def by_state() -> Iterable[tuple[tuple[str, ...], float]]:
        counts: Counter[tuple[str, str]] = Counter()
        for machine in groups.machines():
            counts.update(machine.statistics())
        return sorted(counts.items())

    metrics.watch_table("martlet_groups", "Groups coordinated here.", ("type", "state"), by_state)
    metrics.watch("martlet_parked_group_requests", "Requests that wait for their group.", lambda: groups.waiting_count)
    metrics.watch(
        "martlet_unserved_group_partitions",
        "Partitions of the offsets topic led here whose groups are not served.",
        lambda: len(groups.unserved()),
    )

"""What is of groups in their coordinator: the topic, the machine's options and view of the topics, and what is counted.

Rule: the groups machine and its records are imported with the first shard: a broker without groups starts sooner so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from martlet.base.ids import TopicId
from martlet.base.randomness import IdSource
from martlet.broker.administration.topic_admin import TopicAdmin
from martlet.broker.coordinators.coordinator_host import CoordinatorHost, MachineKind
from martlet.broker.coordinators.internal_topic import InternalTopic, InternalTopicSpec
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import TopicRecord
from martlet.cluster.topic_names import CONSUMER_OFFSETS_TOPIC
from martlet.coordinator.result import RecordCodec
from martlet.coordinator.snapshots import DEFAULT_SNAPSHOTS, SnapshotRule
from martlet.groups.ports import ConsumerTimes, GroupsOptions, TopicView
from martlet.groups.share.options import ShareOptions, ShareTimes
from martlet.observe.metrics import BrokerMetrics

if TYPE_CHECKING:
    from martlet.groups.machine import GroupsMachine

GroupCoordinator: TypeAlias = "CoordinatorHost[GroupsMachine]"

_MINUTE_MS: Final = 60_000
_ASSIGNMENT_INTERVAL: Final = "group.consumer.assignment.interval.ms"


def group_kind(
    options: GroupsOptions,
    view: "ImageTopics",
    ids: IdSource,
    metrics: BrokerMetrics,
    snapshots: SnapshotRule = DEFAULT_SNAPSHOTS,
    on_share_member_left: Sequence[Callable[[str, str], None]] = (),
) -> "MachineKind[GroupsMachine]":
    """What a coordinator host must know of groups; `on_share_member_left` may grow when the machine runs already."""

    def make_machine() -> "GroupsMachine":
        from martlet.groups.machine import GroupsMachine

        return GroupsMachine(options, view, ids)

    def make_codec() -> RecordCodec[Any]:
        from martlet.groups.record_codec import KINDS, GroupRecordCodec
        from martlet.groups.share.record_kinds import SHARE_KINDS

        return GroupRecordCodec((*KINDS, *SHARE_KINDS))

    return MachineKind(
        "groups", make_machine, make_codec, partial(_stored, metrics, on_share_member_left), snapshots=snapshots
    )


def offsets_topic(settings: BrokerSettings, image: MetadataImage, admin: TopicAdmin) -> InternalTopic:
    """`__consumer_offsets`, which holds everything about groups."""
    count, factor = settings.offsets_topic_partitions, settings.offsets_topic_replication_factor
    return InternalTopic(InternalTopicSpec(CONSUMER_OFFSETS_TOPIC, count, factor), image, admin)


def group_options(
    settings: BrokerSettings,
    consumer_times_of: Callable[[str], ConsumerTimes | None] = lambda group_id: None,
    share_times_of: Callable[[str], ShareTimes | None] = lambda group_id: None,
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
        share=ShareOptions(times_of=share_times_of),
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


def share_times(settings: TopicSettings) -> Callable[[str], ShareTimes]:
    """What share groups set themselves, or the broker for all of them."""

    def times_of(group_id: str) -> ShareTimes:
        config = settings.group_config(group_id)
        return ShareTimes(config.number("share.session.timeout.ms"), config.number("share.heartbeat.interval.ms"))

    return times_of


class ImageTopics:
    """The cluster's topics as the groups machine sees them; reads the metadata image, holds nothing."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def topic(self, name: str) -> TopicView | None:
        record = self._image.topic(name)
        return self._view(record) if record is not None else None

    def topic_by_id(self, topic_id: TopicId) -> TopicView | None:
        record = self._image.topic_by_id(topic_id)
        return self._view(record) if record is not None else None

    def names(self) -> Iterable[str]:
        """Topics a client may subscribe to."""
        return [record.name for record in self._image.topics() if not record.internal]

    def _view(self, record: TopicRecord) -> TopicView:
        return TopicView(record.id, record.name, record.partition_count, self._racks(record))

    def _racks(self, record: TopicRecord) -> tuple[frozenset[str], ...]:
        rack_of = {broker.id: broker.rack for broker in self._image.brokers() if broker.rack}
        if not rack_of:
            return ()
        return tuple(
            frozenset(rack_of[replica] for replica in partition.replicas if replica in rack_of)
            for partition in self._image.partitions(record.name)
        )


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


def _stored(metrics: BrokerMetrics, on_left: Sequence[Callable[[str, str], None]], records: Sequence[object]) -> None:
    from martlet.groups.records import ClassicGroupStored, OffsetCommitted, OffsetPending, TargetEpochStored
    from martlet.groups.share.records import ShareMemberRemoved

    for record in records:
        kind = type(record)
        if kind is OffsetCommitted or kind is OffsetPending:
            metrics.offset_commits += 1
        elif kind is TargetEpochStored or (isinstance(record, ClassicGroupStored) and record.members):
            metrics.group_rebalances += 1
        elif isinstance(record, ShareMemberRemoved):
            for hears in on_left:
                hears(record.group_id, record.member_id)

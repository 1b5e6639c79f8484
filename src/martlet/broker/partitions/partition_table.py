"""The replicas on this broker, each with its log and its role, kept in step with the cluster's metadata.

A led partition is found by one dictionary access, the first step of every publish and fetch; everything else (opening
logs, roles, settings, deletion) happens off that path. A partition with one replica gets its log when it is first used;
one with several gets it when this broker becomes a replica, because a follower copies at once.

Invariants: PAR-11 a partition object exists only for a topic id in the metadata image; it leads only in an epoch for
which this very process was elected: leadership never survives a restart; PAR-12 a log is given up only when the image
holds a record of its topic id that names other replicas, or in which this broker has resigned a damaged replica; never
because something could not be read; PAR-13 a replica is replaced in the turn in which its next leader epoch becomes
known: no fetch in that epoch speaks of the one before.
Proved by: tests/unit/broker/partitions/test_partition_table.py, tests/unit/broker/administration/test_damaged_copies.py
"""

import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.base.ids import BrokerId, Member, TopicId, TopicPartition
from martlet.base.threads import MakeWorkers, ThreadWorkers, Workers
from martlet.broker.ground.disk_space import DiskSpace
from martlet.broker.partitions.damage_reports import DamageReports
from martlet.broker.partitions.flusher import FLUSHES_MAX, Flusher
from martlet.broker.partitions.log_opening import LogOpening
from martlet.broker.partitions.partition import Partition
from martlet.broker.partitions.partition_role import Role, role_of
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.records import PartitionRecord, TopicRecord
from martlet.cluster.resignation import has_resigned
from martlet.log.log_directory import LogDirectory
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

_READS_MAX: Final = 6
"""Fetches whose bytes are read from the device at once."""

_UNLIMITED_BYTES: Final = 1 << 62


class PartitionTable:
    """Owner of every open partition of this broker."""

    def __init__(
        self,
        me: Member,
        image: MetadataImage,
        logs: LogDirectory,
        topic_settings: TopicSettings,
        metrics: BrokerMetrics,
        clock: Clock,
        on_storage_failure: Callable[[StorageFailure], None],
    ) -> None:
        self._me = me
        self._image = image
        self._logs = logs
        self._topic_settings = topic_settings
        self._metrics = metrics
        self._clock = clock
        self._on_storage_failure = on_storage_failure
        self._hosted: dict[tuple[str, int], Partition] = {}
        self._led: dict[tuple[str, int], Partition] = {}
        self.flusher = Flusher(metrics, self.storage_failed)
        self.readers: Workers = ThreadWorkers("martlet-read", _READS_MAX)
        """Who reads what is not in the kernel's memory."""
        self.damage = DamageReports(logs.path, metrics)
        self.opening = LogOpening(logs, topic_settings, clock)
        self.space = DiskSpace(lambda: _UNLIMITED_BYTES, 0, clock)
        """What may still be written."""
        self.on_roles_changed: Callable[[Collection[Partition]], None] = lambda partitions: None
        """Hears of every partition whose role, leader or leader epoch is another now, or that is gone from here."""
        self.on_may_join: Callable[[Partition], None] = lambda partition: None
        """Hears of a led partition with a follower that has caught up and is not in sync yet."""
        self.may_act: Callable[[], bool] = lambda: True
        """Whether the cluster still counts on this process; if not, another broker may lead what is led here."""

    def wait_with(self, make_workers: MakeWorkers) -> None:
        """Have others wait for the device; before anything is read or written."""
        self.flusher.workers = make_workers("martlet-flush", FLUSHES_MAX)
        self.readers = make_workers("martlet-read", _READS_MAX)

    # --- looking up

    @property
    def me(self) -> BrokerId:
        """This broker."""
        return self._me.broker

    def get(self, topic: str, index: int) -> Partition:
        """The partition, opened if need be; raises ApiError when it does not exist or is led elsewhere."""
        partition = self._led.get((topic, index))
        return partition if partition is not None else self._open_led(topic, index)

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """The same by topic id."""
        return self.get(self._name_of(topic_id), index)

    def readable(self, topic: str, index: int) -> Partition:
        """The partition for a reader: led here, or followed; raises ApiError like `get`."""
        partition = self._led.get((topic, index))
        if partition is not None:
            return partition
        partition = self._hosted.get((topic, index))
        if partition is not None and partition.follower is not None:
            return partition
        return self._open_led(topic, index)

    def hosted(self, topic: str, index: int) -> Partition | None:
        """The replica here, whatever its role, if it has a log in use; never makes one."""
        return self._hosted.get((topic, index))

    def leads(self, topic: str, index: int) -> bool:
        """Whether this process is the partition's leader."""
        record = self._image.partition(topic, index)
        return record is not None and record.is_led_by(*self._me)

    def log_failed(self, topic: str, index: int) -> bool:
        """Whether there is a log on disk that could not be opened."""
        return TopicPartition(topic, index) in self._logs.failures

    def open_partitions(self) -> list[Partition]:
        """Every replica with a log in use."""
        return list(self._hosted.values())

    def led(self) -> Sequence[Partition]:
        """The partitions led here that have a log in use."""
        return tuple(self._led.values())

    def following(self) -> Sequence[Partition]:
        """The partitions that this broker copies from others."""
        return [partition for partition in self._hosted.values() if partition.follower is not None]

    def damaged(self) -> Sequence[Partition]:
        """The replicas here that could not be read somewhere."""
        return [self._hosted[name] for name in sorted(self.damage.names) if name in self._hosted]

    def check_acting(self) -> None:
        """Raise when another process may have taken over from this one."""
        if not self.may_act():
            raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker has lost touch with its cluster")

    def _name_of(self, topic_id: bytes) -> str:
        topic = self._image.topic_by_id(TopicId(topic_id))
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return topic.name

    # --- following the metadata

    def open_existing(self) -> None:
        """At start: take over the logs on disk, and open one for every replicated partition.

        A log that belongs to no known topic is kept but not served.
        """
        for log in list(self._logs):
            name = log.partition
            topic = self._image.topic(name.topic)
            record = self._image.partition(*name)
            if topic is None or record is None or log.topic_id not in (None, topic.id):
                kept_as = self._logs.set_aside(name)
                logger.warning("the files of %s belong to no known topic; they are kept as %s", name, kept_as)
                continue
            if log.is_damaged:
                logger.error(
                    "%s was damaged while no broker used it; its last %d bytes are truncated", name, log.cut_bytes
                )
            elif log.cut_bytes:
                logger.warning("%s ended in %d bytes that were never whole; they were truncated", name, log.cut_bytes)
            self._follow_record(topic, record, has_log=True)
            if log.topic_id is None and self._logs.get(name) is log:
                self.opening.name_topic(log, topic)
        self.host_missing()
        for partition in self.open_partitions():
            self.damage.report(partition)
        for name, failure in self._logs.failures.items():
            logger.critical(
                "the log of %s cannot be used and its partition is offline: %s. %s", name, failure, self.damage.advice()
            )

    def host_missing(self) -> None:
        """Open a log for every replicated partition that has none yet: at the start, and where there was no space."""
        hosted = [
            self._follow_record(topic, record)
            for topic in self._image.topics()
            for record in self._image.partitions(topic.name)
            if (topic.name, record.partition) not in self._hosted
        ]
        if changed := [partition for partition in hosted if partition is not None]:
            self.on_roles_changed(changed)

    def follow_delta(self, delta: ImageDelta) -> None:
        """Take the roles that the changed partitions ask for; deleted and changed topics come separately."""
        changed = []
        for change in delta.partitions:
            record = change.after
            topic = self._image.topic(change.topic)
            if record is not None and topic is not None and topic.id == record.topic_id:
                partition = self._follow_record(topic, record)
                if partition is not None:
                    changed.append(partition)
        if changed:
            self.on_roles_changed(changed)

    def topic_deleted(self, topic: TopicRecord) -> None:
        """Close and delete the topic's partitions; waiting requests are woken to find them gone."""
        closed = []
        for index in range(topic.partition_count):
            self._led.pop((topic.name, index), None)
            partition = self._hosted.pop((topic.name, index), None)
            if partition is not None:
                partition.close(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} was deleted"))
                closed.append(partition)
            self._logs.delete(TopicPartition(topic.name, index))
            self.damage.forget(TopicPartition(topic.name, index))
        self._metrics.forget_topic(topic.name)
        if closed:
            self.on_roles_changed(closed)

    def topic_changed(self, topic: TopicRecord) -> None:
        """Apply changed settings to the topic's open partitions."""
        for index in range(topic.partition_count):
            partition = self._hosted.get((topic.name, index))
            record = self._image.partition(topic.name, index)
            if partition is not None:
                replica_count = len(record.replicas) if record is not None else 1
                partition.log.update_options(self._topic_settings.log_options(topic))
                partition.take_policy(self._topic_settings.flush_policy(topic, replica_count))
                partition.take_replication(self._topic_settings.replication(topic))
                partition.take_features(self._topic_settings.delivery(topic), self._logs.disk)

    # --- what partitions report

    def storage_failed(self, partition: Partition, error: StorageFailure) -> None:
        if not partition.offline:
            partition.close(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {partition.name} is offline"))
            logger.critical("storage of %s failed: %s", partition.name, error)
            self._on_storage_failure(error)

    # --- roles

    def _follow_record(self, topic: TopicRecord, record: PartitionRecord, *, has_log: bool = False) -> Partition | None:
        """Do what the record asks of this broker; the partition if that changed anything for its copying."""
        partition = self._hosted.get((topic.name, record.partition))
        role = role_of(record, self._me)
        if role is Role.NONE:
            return self._give_up(TopicPartition(topic.name, record.partition), topic)
        if partition is not None and partition.name in self.damage.names and self._has_resigned(partition, record):
            self._put_aside(partition, record)
            partition = None
        if partition is None:
            if not has_log and len(record.replicas) <= 1:
                return None  # opened when it is first used
            try:
                partition = self._host(topic, record)
            except ApiError as error:
                logger.error("%s-%d cannot be served: %s", topic.name, record.partition, error)
                return None
        elif partition.topic_id != record.topic_id:
            return None
        return partition if self._take_role(partition, topic, record, role) else None

    def _take_role(self, partition: Partition, topic: TopicRecord, record: PartitionRecord, role: Role) -> bool:
        """Whether the role, the leader or the epoch is another now."""
        is_same_epoch = partition.leader_epoch == record.leader_epoch
        if not is_same_epoch:
            partition.become_idle(record)  # first of all: nothing may be acknowledged any more in the epoch before
        partition.take_policy(self._topic_settings.flush_policy(topic, len(record.replicas)))
        if role is Role.LEADS:
            if is_same_epoch and partition.leader is not None:
                partition.state_stored(record)
                return False
            partition.lead(record, self._clock.monotonic_ms())
            self._led[partition.name] = partition
            return True
        self._led.pop(partition.name, None)
        if role is Role.FOLLOWS:
            if is_same_epoch and partition.follower is not None:
                return False
            partition.follow(record)
        else:
            if is_same_epoch and partition.leader is None and partition.follower is None:
                return False
            partition.become_idle(record)
        return True

    def _give_up(self, name: TopicPartition, topic: TopicRecord) -> Partition | None:
        """The partition has other replicas now: stop using its log, and delete it a while later (PAR-12)."""
        self._led.pop(name, None)
        self.damage.forget(name)
        partition = self._hosted.pop(name, None)
        log = self._logs.get(name)
        if partition is not None:
            reason = f"{name} has been moved to other brokers"
            partition.close(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, reason))
        if log is not None and log.topic_id == topic.id:
            self._logs.delete(name)
            logger.info("%s has been moved to other brokers; its files here will be deleted", name)
        elif log is not None or name in self._logs.failures:
            kept_as = self._logs.set_aside(name)
            logger.warning("%s has been moved to other brokers; its unreadable files are kept as %s", name, kept_as)
        return partition

    def _has_resigned(self, partition: Partition, record: PartitionRecord) -> bool:
        """Whether nothing counts on this replica, nor on what its fetches have shown until now (PAR-12, PAR-13)."""
        is_new_epoch = record.topic_id == partition.topic_id and record.leader_epoch > partition.leader_epoch
        return is_new_epoch and has_resigned(record, self._me.broker)

    def _put_aside(self, partition: Partition, record: PartitionRecord) -> None:
        """Use the damaged replica no more and keep its files; no broker vouches for it, so nothing else need know."""
        name = partition.name
        self._led.pop(name, None)
        del self._hosted[name]
        self.damage.forget(name)
        partition.close(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the damaged replica of {name} has been given up"))
        self.on_roles_changed([partition])
        kept_as = self._logs.set_aside(name)
        logger.warning(
            "the damaged replica of %s is kept as %s; it is copied again from broker %s", name, kept_as, record.leader
        )

    # --- opening

    def _open_led(self, topic_name: str, index: int) -> Partition:
        topic = self._image.topic(topic_name)
        record = self._image.partition(topic_name, index)
        if topic is None or record is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not record.is_led_by(*self._me):
            code = ErrorCode.LEADER_NOT_AVAILABLE if record.leader is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise ApiError(code)
        partition = self._hosted.get((topic_name, index)) or self._host(topic, record)
        self._take_role(partition, topic, record, Role.LEADS)
        return partition

    def _host(self, topic: TopicRecord, record: PartitionRecord) -> Partition:
        """The replica with its log, not yet in any role; raises ApiError when there can be no log."""
        name = TopicPartition(topic.name, record.partition)
        log = self.opening.open(name, topic, role_of(record, self._me))
        policy, counters = (
            self._topic_settings.flush_policy(topic, len(record.replicas)),
            self._metrics.topic(topic.name),
        )
        partition = Partition(name, topic.id, log, self._me, policy, counters, self)
        partition.take_replication(self._topic_settings.replication(topic))
        partition.take_features(self._topic_settings.delivery(topic), self._logs.disk)
        self._hosted[name] = partition
        if log.durability.flushed_offset < log.end_offset:
            self.flusher.flush_soon(partition)
        return partition

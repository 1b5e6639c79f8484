"""The partitions this broker leads, opened when first used, and kept in step with the cluster's metadata.

Looking a partition up is the first step of every publish and fetch, so it is one dictionary access; everything
else (opening the log, settings, deletion) happens off that path.

Invariant: (T1) a partition object exists only for a topic id in the metadata image, and its leader epoch is the one
this very process was elected with: leadership never survives a restart.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, DiskFull, ErrorCode, StorageFailure
from martlet.base.ids import BrokerId, Incarnation, TopicId, TopicPartition
from martlet.broker.flush_policy import FlushPolicy, decide_flush_mode
from martlet.broker.flusher import Flusher
from martlet.broker.partition import Partition
from martlet.broker.topic_settings import TopicSettings
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import PartitionRecord, TopicRecord
from martlet.log.log_directory import LogDirectory
from martlet.log.partition_log import PartitionLog
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)


class LeaderIdentity(NamedTuple):
    """Which process leads: leadership belongs to a process start, not to a broker's number."""

    broker: BrokerId
    incarnation: Incarnation


class PartitionTable:
    """Owner of every open partition of this broker."""

    def __init__(
        self,
        me: LeaderIdentity,
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
        self._open: dict[tuple[str, int], Partition] = {}
        self.flusher = Flusher(metrics, self.storage_failed)
        self.full_since_ms: int | None = None
        """When the disk was found full; publishes are refused until there is space again."""

    # --- looking up

    def get(self, topic: str, index: int) -> Partition:
        """The partition, opened if need be; raises ApiError when it does not exist or is led elsewhere."""
        partition = self._open.get((topic, index))
        return partition if partition is not None else self._open_partition(topic, index)

    def get_by_id(self, topic_id: bytes, index: int) -> Partition:
        """The same by topic id."""
        topic = self._image.topic_by_id(TopicId(topic_id))
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
        return self.get(topic.name, index)

    def opened(self, topic: str, index: int) -> Partition | None:
        """The partition if it has a log in use here; never makes one."""
        return self._open.get((topic, index))

    def leads(self, topic: str, index: int) -> bool:
        """Whether this process is the partition's leader."""
        record = self._image.partition(topic, index)
        return record is not None and record.is_led_by(*self._me)

    def log_failed(self, topic: str, index: int) -> bool:
        """Whether there is a log on disk that could not be opened."""
        return TopicPartition(topic, index) in self._logs.failures

    def open_partitions(self) -> list[Partition]:
        """Every partition that has been used since the start."""
        return list(self._open.values())

    def check_writable(self) -> None:
        """Raise when publishes are refused because the disk is full."""
        if self.full_since_ms is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, "the broker's disk is full; publishes are refused for now")

    # --- following the metadata

    def open_existing(self) -> None:
        """At start: take over the logs on disk; one that belongs to no known topic is kept but not served."""
        for name, failure in self._logs.failures.items():
            logger.critical("the log of %s cannot be used and its partition is offline: %s", name, failure)
        for log in list(self._logs):
            name = log.partition
            topic = self._image.topic(name.topic)
            if topic is None or name.partition >= topic.partition_count or log.topic_id not in (None, topic.id):
                kept_as = self._logs.set_aside(name)
                logger.warning("the files of %s belong to no known topic; they are kept as %s", name, kept_as)
            else:
                self.get(name.topic, name.partition)
                if log.cut_bytes:
                    logger.warning("%s ended in %d bytes that were never whole; they were cut off", name, log.cut_bytes)

    def topic_deleted(self, topic: TopicRecord) -> None:
        """Close and delete the topic's partitions; waiting requests are woken to find them gone."""
        for index in range(topic.partition_count):
            partition = self._open.pop((topic.name, index), None)
            if partition is not None:
                partition.close(ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic.name} was deleted"))
            self._logs.delete(TopicPartition(topic.name, index))
        self._metrics.forget_topic(topic.name)

    def topic_changed(self, topic: TopicRecord) -> None:
        """Apply changed settings to the topic's open partitions."""
        for index in range(topic.partition_count):
            partition = self._open.get((topic.name, index))
            if partition is not None:
                partition.log.update_options(self._topic_settings.log_options(topic))
                partition.policy = self._policy(topic, self._image.partition(topic.name, index))

    # --- what partitions report

    def appended(self, partition: Partition) -> None:
        self.flusher.appended(partition)

    def disk_full(self, partition: Partition, error: DiskFull) -> None:
        if self.full_since_ms is None:
            self.full_since_ms = self._clock.now_ms()
            logger.error("the disk is full (%s); publishes are refused until there is space", error)

    def storage_failed(self, partition: Partition, error: StorageFailure) -> None:
        if not partition.offline:
            partition.close(ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {partition.name} is offline"))
            logger.critical("storage of %s failed: %s", partition.name, error)
            self._on_storage_failure(error)

    # --- opening

    def _open_partition(self, topic_name: str, index: int) -> Partition:
        topic = self._image.topic(topic_name)
        record = self._image.partition(topic_name, index)
        if topic is None or record is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not record.is_led_by(*self._me):
            code = ErrorCode.LEADER_NOT_AVAILABLE if record.leader is None else ErrorCode.NOT_LEADER_OR_FOLLOWER
            raise ApiError(code)
        name = TopicPartition(topic_name, index)
        log = self._open_log(name, topic)
        partition = Partition(
            name,
            topic.id,
            log,
            record.leader_epoch,
            self._policy(topic, record),
            self._metrics.topic(topic_name),
            self,
        )
        log.assign_epoch(record.leader_epoch)
        self._open[(topic_name, index)] = partition
        if log.flushed_offset < log.end_offset:
            self.flusher.flush_soon(partition)
        return partition

    def _open_log(self, name: TopicPartition, topic: TopicRecord) -> PartitionLog:
        failure = self._logs.failures.get(name)
        if failure is not None:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        log = self._logs.get(name)
        if log is not None:
            return log
        try:
            options = self._topic_settings.log_options(topic)
            return self._logs.create(name, options, topic_id=topic.id, now_ms=self._clock.now_ms())
        except StorageFailure as error:
            logger.error("cannot make a log for %s: %s", name, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _policy(self, topic: TopicRecord, record: PartitionRecord | None) -> FlushPolicy:
        flush = self._topic_settings.flush(topic)
        replicas = len(record.replicas) if record is not None else 1
        return FlushPolicy(decide_flush_mode(flush.configured, replicas), flush.interval_ms, flush.messages)

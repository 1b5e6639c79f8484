"""The log of a replica: the one that is on disk, a new one, or a new one in place of one that cannot be used.

A log that cannot be used is put aside where the leader has a complete one; its files are kept.
"""

import logging
from collections.abc import Callable

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, DiskFull, ErrorCode, StorageFailure
from martlet.base.ids import TopicPartition
from martlet.broker.partitions.partition_role import Role
from martlet.broker.partitions.topic_settings import TopicSettings
from martlet.cluster.records import TopicRecord
from martlet.log.log_directory import LogDirectory
from martlet.log.partition_log import PartitionLog

logger = logging.getLogger(__name__)


class LogOpening:
    """Owned by the partition table."""

    def __init__(self, logs: LogDirectory, topic_settings: TopicSettings, clock: Clock) -> None:
        self._logs = logs
        self._topic_settings = topic_settings
        self._clock = clock
        self.on_given_up: Callable[[], None] = lambda: None
        """Called before a log that could not be opened is put aside, to be copied from the leader."""

    def open(self, name: TopicPartition, topic: TopicRecord, role: Role) -> PartitionLog:
        """The log for a replica in that role; raises ApiError when there can be none."""
        failure = self._logs.failures.get(name)
        if failure is not None:
            self._replace(name, failure, role)
        log = self._logs.get(name)
        if log is not None:
            return log
        try:
            options = self._topic_settings.log_options(topic)
            return self._logs.create(name, options, topic_id=topic.id, now_ms=self._clock.now_ms())
        except StorageFailure as error:
            logger.error("cannot make a log for %s: %s", name, error)
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

    def _replace(self, name: TopicPartition, failure: StorageFailure, role: Role) -> None:
        if role is not Role.FOLLOWS or isinstance(failure, DiskFull):
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
        try:
            self.on_given_up()
        except DiskFull as error:
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        kept_as = self._logs.set_aside(name)
        logger.error("the log of %s cannot be used: kept as %s, and copied again from the leader", name, kept_as)

    def name_topic(self, log: PartitionLog, topic: TopicRecord) -> None:
        """Write down whose log this is, of a log that does not say so."""
        name = log.partition
        logger.warning("the files of %s do not say whose they are; by their name they are this topic's", name)
        try:
            log.assign_topic_id(topic.id)
        except StorageFailure as failure:
            logger.warning("cannot write down whose files those of %s are: %s", name, failure)

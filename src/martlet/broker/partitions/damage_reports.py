"""What could not be read of the logs on this broker: what readers are answered, and what is logged, once per fault.

A consumer that comes to a damaged place asks for it again and again; a fault that is reported is kept in mind until the
replica is gone.

Invariant: PAR-14 a read that fails never ends the process.
Proved by: tests/unit/broker/partitions/test_damaged_logs.py
"""

import errno
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from martlet.base.errors import DiskFull, ErrorCode, LogDamaged, StorageFailure
from martlet.base.ids import TopicPartition
from martlet.observe.metrics import BrokerMetrics

if TYPE_CHECKING:
    from martlet.broker.partitions.partition import Partition

logger = logging.getLogger(__name__)

_REPORTED_MAX: Final = 100
"""Faults of one partition that are logged one by one; a longer list helps no operator."""
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class DamageReports:
    """Owned by the partition table."""

    def __init__(self, log_directory: str, metrics: BrokerMetrics) -> None:
        self._log_directory = log_directory
        self._metrics = metrics
        self.names: set[TopicPartition] = set()
        """The partitions whose replica here is damaged or cannot be read."""
        self._reported: dict[TopicPartition, set[str]] = {}
        self.on_damaged: Callable[[Partition], bool] = lambda partition: False
        """Called for a replica that cannot be read; answers whether it is to be replaced by a complete one."""

    def read_failed(self, partition: "Partition", error: StorageFailure) -> ErrorCode:
        """What to answer the reader, after doing what has to be done.

        A replica that cannot be read is given up where another one is complete. Else it goes on: what is sound in it
        can be read.
        """
        if partition.closed_with is not None:
            return partition.closed_with.code
        if is_of_the_log(error):
            self._metrics.damaged_reads += 1
            if not self._found(partition, error) and isinstance(error, LogDamaged):
                return ErrorCode.CORRUPT_MESSAGE
        elif self._is_first(partition.name, error):
            logger.error("%s cannot be read for now: %s", partition.name, error)
        return ErrorCode.KAFKA_STORAGE_ERROR

    def report(self, partition: "Partition") -> None:
        """Report damage that no reader has met, if none is known of this replica."""
        if partition.name not in self.names:
            for damage in partition.log.damage:
                self._found(partition, LogDamaged(damage))

    def forget(self, name: TopicPartition) -> None:
        """This replica is not here any more."""
        self.names.discard(name)
        self._reported.pop(name, None)

    def advice(self) -> str:
        """What an operator can do about damage."""
        command = f"martlet log check {self._log_directory} --repair"
        return f"With the broker stopped, `{command}` shows what would be lost before it repairs anything"

    def _found(self, partition: "Partition", error: StorageFailure) -> bool:
        """Log it once; whether this replica is given up for another one."""
        is_first = self._is_first(partition.name, error)
        is_given_up = self.on_damaged(partition)
        if is_first and is_given_up:
            logger.error("%s is damaged and will be copied again from another broker: %s", partition.name, error)
        elif is_first:
            logger.error(
                "%s is damaged, and no other replica is complete and alive: %s. What is sound in it is served. %s",
                partition.name, error, self.advice(),
            )  # fmt: skip
        return is_given_up

    def _is_first(self, name: TopicPartition, failure: StorageFailure) -> bool:
        """Whether this fault has not been reported yet."""
        if is_of_the_log(failure):
            self.names.add(name)
        reported, text = self._reported.setdefault(name, set()), str(failure)
        if text in reported or len(reported) >= _REPORTED_MAX:
            return False
        reported.add(text)
        return True


def is_of_the_log(failure: StorageFailure) -> bool:
    """Whether a failed read speaks of what was to be read, and not of a machine that lacks something for the moment."""
    cause = failure.__cause__
    is_shortage = isinstance(cause, OSError) and cause.errno in _SHORTAGES
    return not is_shortage and not isinstance(failure, DiskFull)

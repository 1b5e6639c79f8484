"""What could not be read of the logs on this broker: each fault is told once, however often a reader meets it.

A consumer that comes to a damaged place asks for it again and again. What is told is kept until the copy is gone.
"""

import errno
from typing import Final

from martlet.base.errors import DiskFull, StorageFailure
from martlet.base.ids import TopicPartition

_TOLD_MAX: Final = 100
"""Faults of one partition that are told one by one; who has more of them needs no longer list."""
_SHORTAGES: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class KnownDamage:
    """Owned by the partition table."""

    def __init__(self) -> None:
        self.names: set[TopicPartition] = set()
        """Whose copy here is damaged or cannot be read."""
        self._told: dict[TopicPartition, set[str]] = {}

    def note(self, name: TopicPartition, failure: StorageFailure) -> bool:
        """Whether this is news, to be told."""
        if is_of_the_log(failure):
            self.names.add(name)
        told, text = self._told.setdefault(name, set()), str(failure)
        if text in told or len(told) >= _TOLD_MAX:
            return False
        told.add(text)
        return True

    def forget(self, name: TopicPartition) -> None:
        """This copy is not here any more."""
        self.names.discard(name)
        self._told.pop(name, None)


def is_of_the_log(failure: StorageFailure) -> bool:
    """Whether a failed read speaks of what was to be read, and not of a machine that lacks something for the moment."""
    cause = failure.__cause__
    is_shortage = isinstance(cause, OSError) and cause.errno in _SHORTAGES
    return not is_shortage and not isinstance(failure, DiskFull)

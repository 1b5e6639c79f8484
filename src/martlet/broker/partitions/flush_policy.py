"""When a partition's appended batches are forced to the device, and when a publish may be acknowledged.

Pure decisions; `flusher.py` does the work. `commit` means: acknowledge (and show to readers) only what is on the
device. `auto`, the default, is `commit` while a partition has one replica and `interval` once it is replicated,
because then another machine holds the batch.
"""

from dataclasses import dataclass
from enum import Enum


class FlushMode(Enum):
    """What triggers a flush."""

    NEVER = "never"
    INTERVAL = "interval"
    MESSAGES = "messages"
    COMMIT = "commit"


@dataclass(frozen=True, slots=True)
class FlushPolicy:
    """One partition's policy, with `auto` already decided."""

    mode: FlushMode
    interval_ms: int
    messages: int

    @property
    def before_acknowledge(self) -> bool:
        return self.mode is FlushMode.COMMIT


def decide_flush_mode(configured: str, replica_count: int) -> FlushMode:
    """The mode for a topic's `martlet.flush` value."""
    if configured == "auto":
        return FlushMode.COMMIT if replica_count <= 1 else FlushMode.INTERVAL
    return FlushMode(configured)

"""When a partition's appended batches are forced to the device, and when a publish may be acknowledged.

Pure decisions; `flusher.py` does the work. `commit` means: acknowledge (and show to readers) only what is on the
device. `auto`, the default, is `commit` while a partition has one replica and `interval` once it is replicated,
because then another machine holds the batch.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

WRITE_BACK_BYTES: Final = 32 << 20
"""Unflushed bytes after which a flush starts early, so that the kernel need not stall our writes to catch up."""


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


class FlushState:
    """What one partition has appended since its last flush began; the flusher acts on it."""

    __slots__ = ("bytes", "in_progress", "messages", "policy")

    def __init__(self, policy: FlushPolicy) -> None:
        self.policy = policy
        self.bytes = 0
        self.messages = 0
        self.in_progress = False

    def appended(self, size_bytes: int, messages: int) -> None:
        self.bytes += size_bytes
        self.messages += messages

    def begin(self) -> None:
        """A flush of everything appended so far begins."""
        self.in_progress = True
        self.bytes = self.messages = 0

    def is_due(self, segment_bytes: int) -> bool:
        """Whether a flush is due because of what was appended, and not because time has passed."""
        mode = self.policy.mode
        if mode is FlushMode.COMMIT:
            return True
        if mode is FlushMode.NEVER:
            # Once per segment all the same, or a crash would mean checking everything ever written.
            return self.bytes >= segment_bytes
        if mode is FlushMode.MESSAGES and self.messages >= self.policy.messages:
            return True
        return self.bytes >= WRITE_BACK_BYTES


def decide_flush_mode(configured: str, replica_count: int) -> FlushMode:
    """The mode for a topic's `martlet.flush` value."""
    if configured == "auto":
        return FlushMode.COMMIT if replica_count <= 1 else FlushMode.INTERVAL
    return FlushMode(configured)

"""What makes the next calls to a simulated disk fail: a machine that dies at the n-th change, a sync or write refused.

Proved by: tests/unit/sim/test_disk.py
"""

from martlet.base.errors import StorageFailure


class SimCrash(BaseException):
    """Raised by every call once the simulated machine has died; nothing in Martlet may catch it."""


class FailingDevice:
    """Base of the simulated disk, which says what it is about to do."""

    def __init__(self) -> None:
        self.syncs = self.writes = 0
        self._changes_left: int | None = None
        self._failing_syncs = 0
        self._failing_writes = 0

    def stop_after(self, changes: int) -> None:
        """Let `changes` more changes of files or names happen; from the next one on everything raises SimCrash."""
        self._changes_left = changes

    def stop_no_more(self) -> None:
        """Whatever was to fail from now on does not."""
        self._failing_syncs = self._failing_writes = 0
        if self._changes_left is not None and self._changes_left >= 0:
            self._changes_left = None

    def fail_next_sync(self) -> None:
        self._failing_syncs += 1

    def fail_next_write(self) -> None:
        self._failing_writes += 1

    def come_back(self) -> None:
        """The machine runs again, and nothing fails."""
        self._changes_left = None
        self._failing_syncs = self._failing_writes = 0

    def check_running(self) -> None:
        """Raise SimCrash if the machine has died."""
        if self._changes_left is not None and self._changes_left < 0:
            raise SimCrash

    def about_to_change(self) -> None:
        """A file or a name is about to change; raises SimCrash if the machine dies of it."""
        self.check_running()
        if self._changes_left is not None:
            self._changes_left -= 1
            self.check_running()

    def about_to_sync(self, path: str) -> None:
        """Content or names are about to be made durable; raises StorageFailure if that fails."""
        self.about_to_change()
        self.syncs += 1
        if self._failing_syncs:
            self._failing_syncs -= 1
            raise StorageFailure(f"{path}: Input/output error")

    def write_fails(self) -> bool:
        """Whether the write that is about to happen is one that fails."""
        self.about_to_change()
        self.writes += 1
        if not self._failing_writes:
            return False
        self._failing_writes -= 1
        return True

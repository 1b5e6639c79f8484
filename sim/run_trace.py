"""What happened in a simulated run, one line per event, as a hash that two equal runs share.

Lines hold virtual time, a place and facts; nothing that differs between two processes may get in (object ids, real
time, iteration order of sets). The last lines are kept as text, because the end of a failed run is what one reads.
"""

import hashlib
from collections import deque
from typing import Final

_LINES_KEPT: Final = 400


class SimTrace:
    """Appended to by everything simulated; `hexdigest` names the run."""

    def __init__(self, *, keep_all: bool = False) -> None:
        self._digest = hashlib.blake2b(digest_size=16)
        self.count = 0
        self.lines: deque[str] = deque(maxlen=None if keep_all else _LINES_KEPT)

    def note(self, now_ns: int, place: str, what: str) -> None:
        """Add one event."""
        line = f"{now_ns} {place} {what}"
        self._digest.update(line.encode())
        self.count += 1
        self.lines.append(line)

    def hexdigest(self) -> str:
        """The hash of everything noted so far."""
        return self._digest.hexdigest()

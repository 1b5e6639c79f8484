"""Keeps the books of a group under test: who owns which partition, and what was received by whom, in which order.

Members report from their own threads. Broken rules are noted where they happen and looked at in the end: a partition
with two owners, a message that came to a member that does not own its partition, a message left out or out of order.
"""

import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol


class Event(NamedTuple):
    """A member got or lost partitions."""

    member: str
    kind: str
    partitions: frozenset[int]


class Reports(Protocol):
    """What members tell."""

    def assigned(self, member: str, partitions: Iterable[int]) -> None: ...

    def revoked(self, member: str, partitions: Iterable[int]) -> None: ...

    def received(self, member: str, partition: int, offset: int) -> None: ...

    def failed(self, member: str, what: str) -> None: ...


class Ledger:
    """The books of one group reading one topic."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.events: list[Event] = []
        self.violations: list[str] = []
        self.repeats: list[str] = []
        self.count = 0
        """Messages received, repeated ones too."""
        self._owners: dict[int, str] = {}
        self._done = [0] * partitions
        """Per partition: everything before this offset was received by a member."""
        self._following: dict[int, int] = {}
        """Per partition: what its owner must receive next; not set before its first message."""
        self._changed = threading.Condition(threading.RLock())

    # Reports

    def assigned(self, member: str, partitions: Iterable[int]) -> None:
        with self._changed:
            got = frozenset(partitions)
            self.events.append(Event(member, "assigned", got))
            for partition in got:
                owner = self._owners.get(partition)
                if owner not in (None, member):
                    self.violations.append(f"{partition} was given to {member} while {owner} had it")
                if owner != member:
                    self._following.pop(partition, None)
                self._owners[partition] = member
            self._changed.notify_all()

    def revoked(self, member: str, partitions: Iterable[int]) -> None:
        with self._changed:
            lost = frozenset(partitions)
            self.events.append(Event(member, "revoked", lost))
            for partition in lost:
                if self._owners.get(partition) == member:
                    del self._owners[partition]
            self._changed.notify_all()

    def received(self, member: str, partition: int, offset: int) -> None:
        with self._changed:
            if self._owners.get(partition) != member:
                self.violations.append(
                    f"{member} received {partition}/{offset}, which {self._owners.get(partition)} has"
                )
            expected = self._following.get(partition)
            if expected is None and offset > self._done[partition]:
                self.violations.append(f"{member} began {partition} at {offset} and not at {self._done[partition]}")
            elif expected is not None and offset > expected:
                self.violations.append(f"{member} received {partition}/{offset} instead of {expected}")
            elif expected is not None and offset < expected:
                # A client may go back by itself, librdkafka does when an answer is late; from there on in order again.
                self.repeats.append(f"{member} received {partition}/{offset} again instead of {expected}")
            self._following[partition] = offset + 1
            self._done[partition] = max(self._done[partition], offset + 1)
            self.count += 1
            self._changed.notify_all()

    def failed(self, member: str, what: str) -> None:
        with self._changed:
            self.violations.append(f"{member}: {what}")
            self._changed.notify_all()

    # Looking

    def owned_by(self, member: str) -> set[int]:
        with self._changed:
            return {partition for partition, owner in self._owners.items() if owner == member}

    def events_of(self, member: str) -> list[Event]:
        with self._changed:
            return [event for event in self.events if event.member == member]

    def done(self) -> list[int]:
        """How far each partition has been received without a gap."""
        with self._changed:
            return list(self._done)

    def sought(self, partition: int) -> None:
        """The owner goes to another offset by itself; what comes next is right, whatever it is."""
        with self._changed:
            self._following.pop(partition, None)

    def written_off(self, member: str) -> None:
        """The member is dead and will not say that it has lost its partitions."""
        self.revoked(member, self.owned_by(member))

    # Waiting

    def wait_for(self, condition: Callable[[], bool], seconds: float, what: str) -> float:
        """Wait until the condition holds; how long that took. Broken rules end the wait as well."""
        started = time.monotonic()
        with self._changed:
            while not condition():
                assert not self.violations, self.violations[:5]
                left = started + seconds - time.monotonic()
                assert left > 0, f"not within {seconds} s: {what}; owners are {sorted(self._owners.items())}"
                self._changed.wait(min(left, 0.5))
        return time.monotonic() - started

    def wait_shared(self, members: Iterable[str], seconds: float) -> float:
        """Wait until exactly these members own all partitions, in equal parts."""
        names = set(members)
        share = self.partitions // len(names)

        def is_shared() -> bool:
            parts = [sum(owner == name for owner in self._owners.values()) for name in names]
            return len(self._owners) == self.partitions and all(share <= part <= share + 1 for part in parts)

        return self.wait_for(is_shared, seconds, f"{sorted(names)} share {self.partitions} partitions")

    def wait_read(self, ends: list[int], seconds: float) -> None:
        """Wait until everything up to these offsets was received."""
        self.wait_for(
            lambda: all(done >= end for done, end in zip(self._done, ends, strict=True)), seconds, f"read up to {ends}"
        )

    def check(self) -> None:
        """No rule was broken."""
        assert self.violations == []

"""Offsets in open transactions: nothing of them is seen until the marker of their producer is replayed.

How it works: for each partition the commits of the producers, in the order of the log. When a transaction is committed,
its offset counts unless a later one does already: a plain commit made meanwhile, or that of a transaction which staged
its own later and was committed first. What has been overtaken so stays staged as `None`: the partition is unstable
until the marker is there, whatever the marker says.

A snapshot of the offsets restates commits behind what is staged. Their time tells them from later ones.

Invariants:
GRP-30 A partition is held exactly while a transaction that staged an offset of it has no marker.
GRP-31 The same records in the same order leave the same offsets, whether they are replayed live or loaded.

Proved by: tests/unit/groups/offsets/test_pending_offsets.py, tests/properties/test_pending_offsets.py
"""

from collections.abc import Iterator, Mapping
from typing import TypeAlias

from martlet.groups.records import OffsetCommitted, OffsetPending

_OfProducers: TypeAlias = dict[int, OffsetCommitted | None]
"""What each producer has staged for one partition; None when it has been overtaken."""

_NOTHING: Mapping[tuple[str, int], _OfProducers] = {}


class PendingOffsets:
    """Owned by the table of offsets, which is the only one to change it."""

    __slots__ = ("_groups", "_places")

    def __init__(self) -> None:
        self._groups: dict[str, dict[tuple[str, int], _OfProducers]] = {}
        self._places: dict[int, dict[tuple[str, str, int], None]] = {}
        """Group, topic and partition of everything that a producer has staged."""

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._groups

    def __len__(self) -> int:
        """How many transactions hold offsets."""
        return len(self._places)

    def group_ids(self) -> Iterator[str]:
        return iter(self._groups)

    def holds(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether a transaction holds an offset of this partition."""
        return (topic, partition) in self._groups.get(group_id, _NOTHING)

    def of_group(self, group_id: str) -> list[tuple[str, int]]:
        """Topics and partitions of which the group has staged offsets."""
        return list(self._groups.get(group_id, _NOTHING))

    def stage(self, record: OffsetPending) -> None:
        """Take over an offset of an open transaction."""
        commit, producer_id = record.commit, record.producer_id
        place = (commit.topic, commit.partition)
        of_producers = self._groups.setdefault(commit.group_id, {}).setdefault(place, {})
        of_producers.pop(producer_id, None)  # so that it stands behind those staged before it
        of_producers[producer_id] = commit
        self._places.setdefault(producer_id, {})[commit.group_id, *place] = None

    def overtaken_by(self, commit: OffsetCommitted) -> None:
        """A plain commit counts from now on, and what was staged before it never will."""
        of_producers = self._groups.get(commit.group_id, _NOTHING).get((commit.topic, commit.partition))
        for producer_id, staged in (of_producers or {}).items():
            if staged is not None and of_producers and staged.committed_at_ms < commit.committed_at_ms:
                of_producers[producer_id] = None

    def decide(self, producer_id: int, *, is_commit: bool) -> list[OffsetCommitted]:
        """The producer's transaction has ended; the offsets that count from now on."""
        counting: list[OffsetCommitted] = []
        for group_id, topic, partition in self._places.pop(producer_id, {}):
            places = self._groups[group_id]
            of_producers = places[topic, partition]
            if is_commit and of_producers[producer_id] is not None:
                for earlier in of_producers:
                    if earlier == producer_id:
                        break
                    of_producers[earlier] = None
            staged = of_producers.pop(producer_id)
            if is_commit and staged is not None:
                counting.append(staged)
            if not of_producers:
                del places[topic, partition]
            if not places:
                del self._groups[group_id]
        return counting

    def drop(self, group_id: str, topic: str, partition: int) -> None:
        """The offset was removed, and what is staged goes with it: no marker brings it back."""
        places = self._groups.get(group_id)
        of_producers = places.pop((topic, partition), None) if places is not None else None
        if places is None or of_producers is None:
            return
        if not places:
            del self._groups[group_id]
        for producer_id in of_producers:
            staged = self._places[producer_id]
            del staged[group_id, topic, partition]
            if not staged:
                del self._places[producer_id]

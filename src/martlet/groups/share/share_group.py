"""The state of one share group, changed by replaying records and by nothing else.

Records may come in any order that a compacted log can have them: whatever is missing is created empty.

Proved by: tests/unit/groups/share/test_share_protocol.py, tests/properties/test_share_group.py
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, MutableMapping
from typing import NamedTuple

from martlet.base.ids import TopicId
from martlet.coordinator.draft import Overlay
from martlet.groups.records import NO_PARTITIONS, Partitions
from martlet.groups.share.records import (
    ShareCurrentAssigned,
    ShareCurrentRemoved,
    ShareGroupRemoved,
    ShareGroupStored,
    ShareMemberRemoved,
    ShareMemberStored,
    SharePartitionsRemoved,
    SharePartitionsStored,
    ShareRecord,
    ShareTargetAssigned,
    ShareTargetEpochRemoved,
    ShareTargetEpochStored,
    ShareTargetRemoved,
    TopicPartitions,
)

JOINING_EPOCH = 0
LEAVING_EPOCH = -1


class ShareMember(NamedTuple):
    """What a member has said, and what it was given."""

    stored: ShareMemberStored
    current: ShareCurrentAssigned


class ShareGroup:
    """One group with its members; the runtime's loop owns it."""

    __slots__ = ("epoch", "group_id", "known", "members", "metadata_hash", "target_epoch", "targets")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.epoch = 0
        self.metadata_hash = 0
        self.target_epoch = 0
        self.known: Mapping[TopicId, TopicPartitions] = {}
        """The partitions in which the group may stand somewhere; replaced, never changed."""
        self.members: MutableMapping[str, ShareMember] = {}
        self.targets: MutableMapping[str, Partitions] = {}

    def draft(self) -> "ShareGroup":
        """A copy for a handler."""
        draft = ShareGroup(self.group_id)
        draft.epoch, draft.metadata_hash, draft.target_epoch = self.epoch, self.metadata_hash, self.target_epoch
        draft.known = self.known
        draft.members, draft.targets = Overlay(self.members), Overlay(self.targets)
        return draft

    @property
    def is_empty(self) -> bool:
        return not self.members

    def subscribed_topics(self) -> frozenset[str]:
        """All topics that some member asks for."""
        return frozenset(name for member in self.members.values() for name in member.stored.topic_names)

    def target_of(self, member_id: str) -> Partitions:
        return self.targets.get(member_id, NO_PARTITIONS)

    def live_records(self) -> Iterator[ShareRecord]:
        """What the log says about the group."""
        yield ShareGroupStored(self.group_id, self.epoch, self.metadata_hash)
        for member in self.members.values():
            yield member.stored
            yield member.current
        for member_id, partitions in self.targets.items():
            yield ShareTargetAssigned(self.group_id, member_id, partitions)
        if self.target_epoch:
            yield ShareTargetEpochStored(self.group_id, self.target_epoch)
        if self.known:
            yield partitions_record(self.group_id, self.known)

    def replay(self, record: ShareRecord) -> None:
        """Change the state by one record."""
        match record:
            case ShareMemberStored():
                self.members[record.member_id] = ShareMember(record, self._member(record.member_id).current)
            case ShareMemberRemoved():
                self.members.pop(record.member_id, None)
            case ShareCurrentAssigned():
                self.members[record.member_id] = ShareMember(self._member(record.member_id).stored, record)
            case ShareCurrentRemoved():
                member = self.members.get(record.member_id)
                if member is not None:
                    nothing = ShareCurrentAssigned(self.group_id, record.member_id, 0, 0)
                    self.members[record.member_id] = ShareMember(member.stored, nothing)
            case ShareTargetAssigned():
                self.targets[record.member_id] = record.partitions
            case ShareTargetRemoved():
                self.targets.pop(record.member_id, None)
            case ShareTargetEpochStored():
                self.target_epoch = record.epoch
            case ShareTargetEpochRemoved():
                self.target_epoch = 0
            case SharePartitionsStored():
                gone = {topic_id for topic_id, _ in record.deleting}
                self.known = _united((*record.initialized, *record.initializing), gone)
            case SharePartitionsRemoved():
                self.known = {}
            case ShareGroupStored():
                self.epoch, self.metadata_hash = record.epoch, record.metadata_hash
            case ShareGroupRemoved():
                self.epoch = self.metadata_hash = 0

    def _member(self, member_id: str) -> ShareMember:
        """The member, made up when its own record comes later than its assignment in the log."""
        return self.members.get(member_id) or ShareMember(
            ShareMemberStored(self.group_id, member_id), ShareCurrentAssigned(self.group_id, member_id, 0, 0)
        )


def partitions_record(group_id: str, known: Mapping[TopicId, TopicPartitions]) -> SharePartitionsStored:
    """The record that says in which partitions a group may stand somewhere."""
    return SharePartitionsStored(group_id, initialized=tuple(known[topic_id] for topic_id in sorted(known)))


def _united(entries: Iterable[TopicPartitions], gone: Collection[TopicId]) -> dict[TopicId, TopicPartitions]:
    known: dict[TopicId, TopicPartitions] = {}
    for entry in entries:
        if entry.topic_id not in gone:
            before = known[entry.topic_id].partitions if entry.topic_id in known else ()
            known[entry.topic_id] = entry._replace(partitions=tuple(sorted({*before, *entry.partitions})))
    return known

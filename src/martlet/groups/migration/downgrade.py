"""A consumer group becomes a classic group, because its last KIP-848 member goes or is replaced and classic ones stay.

The group epoch becomes the generation, and those who stay are sent back to join at once, so that the partitions of the
one who left find an owner. The record names no leader: the rebalance chooses one.
"""

from collections.abc import Sequence
from typing import TypeAlias

from martlet.coordinator.result import CancelTimer, Result, SetTimer
from martlet.groups.classic.checks import GROUP_BYTES_MAX
from martlet.groups.classic.member import Protocols, protocols_bytes
from martlet.groups.classic.protocol import ClassicProtocol
from martlet.groups.consumer.departure import member_timers
from martlet.groups.consumer.group import ConsumerGroup, Member
from martlet.groups.consumer.protocol import ConsumerProtocol
from martlet.groups.migration.embedded import assignment_bytes
from martlet.groups.options import GroupsOptions
from martlet.groups.records import (
    ClassicGroupStored,
    ClassicMemberStored,
    ClassicProtocolStored,
    ConsumerMemberStored,
    CurrentAssigned,
)
from martlet.groups.topics import TopicsView

MemberRecords: TypeAlias = tuple[ConsumerMemberStored, CurrentAssigned]
"""What a member wants and what it owns."""


class Downgrading:
    """Turns consumer groups into classic ones."""

    def __init__(
        self, options: GroupsOptions, topics: TopicsView, classic: ClassicProtocol, consumer: ConsumerProtocol
    ) -> None:
        self._options = options
        self._topics = topics
        self._classic = classic
        self._consumer = consumer

    def __call__(
        self, group: ConsumerGroup, leaving: Sequence[Member], response: object, now_ms: int
    ) -> Result[object] | None:
        """The group without those who leave, if it can be a classic one; None when it stays what it is."""
        left = len(group.members) - len(leaving)
        classic_left = group.classic_count - sum(member.is_classic for member in leaving)
        if left == 0 or classic_left < left:
            return None
        gone = {member.member_id for member in leaving}
        stay = [(member.stored, member.current) for member in group.members.values() if member.member_id not in gone]
        return self._convert(group, stay, response, now_ms)

    def replace_last(
        self, group: ConsumerGroup, replaced: Member, joined: MemberRecords, response: object, now_ms: int
    ) -> Result[object] | None:
        """The same when a static member that speaks the classic protocol has taken the last KIP-848 member's place."""
        if replaced.is_classic or group.classic_count < len(group.members) - 1:
            return None
        stay = [(one.stored, one.current) for one in group.members.values() if one is not replaced]
        return self._convert(group, [*stay, joined], response, now_ms)

    def _convert(
        self, group: ConsumerGroup, stay: Sequence[MemberRecords], response: object, now_ms: int
    ) -> Result[object] | None:
        spoken = {stored.member_id: stored.classic.protocols for stored, _ in stay if stored.classic is not None}
        protocol = _common_protocol(list(spoken.values()))
        size = sum(map(protocols_bytes, spoken.values()))
        if protocol is None or len(stay) > self._options.group_max_size or size > GROUP_BYTES_MAX:
            return None
        record = ClassicGroupStored(
            group.group_id,
            "consumer",
            max(group.epoch, *(current.epoch for _, current in stay)),
            protocol,
            None,
            now_ms,
            tuple(self._stored(stored, current, protocol) for stored, current in stay),
        )
        adopted = self._classic.adoption(record, spoken, now_ms, rebalance=True)
        return Result(
            response,
            [*self._consumer.removal(group), *adopted.records],
            [*_ended_timers(group), *adopted.timers],
            adopted.answers,
        )

    def _stored(self, stored: ConsumerMemberStored, current: CurrentAssigned, protocol: str) -> ClassicMemberStored:
        spoken = stored.classic or ClassicProtocolStored(0, ())
        return ClassicMemberStored(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            spoken.session_timeout_ms,
            dict(spoken.protocols)[protocol],
            assignment_bytes(current.assigned, spoken, self._topics),
        )


def _common_protocol(spoken: Sequence[Protocols]) -> str | None:
    """The protocol that everybody speaks and the first member likes best."""
    common = set.intersection(*({name for name, _ in one} for one in spoken))
    return next((name for name, _ in spoken[0] if name in common), None)


def _ended_timers(group: ConsumerGroup) -> list[SetTimer | CancelTimer]:
    ended: list[SetTimer | CancelTimer] = [
        CancelTimer(("assign", group.group_id)),
        CancelTimer(("regex", group.group_id)),
    ]
    for member_id in group.members:
        ended += member_timers(group.group_id, member_id)
    return ended

"""A consumer group becomes a classic group, because its last KIP-848 member goes and classic ones stay.

The group epoch becomes the generation, and those who stay are sent back to join at once, so that the partitions of the
one who left find an owner. The record names no leader: the rebalance chooses one.
"""

from collections.abc import Sequence

from martlet.coordinator.result import CancelTimer, Result, SetTimer
from martlet.groups.classic.protocol import ClassicProtocol
from martlet.groups.consumer.departure import member_timers
from martlet.groups.consumer.group import ConsumerGroup, Member
from martlet.groups.consumer.protocol import ConsumerProtocol
from martlet.groups.migration.embedded import assignment_bytes
from martlet.groups.options import GroupsOptions
from martlet.groups.records import ClassicGroupStored, ClassicMemberStored, ClassicProtocolStored
from martlet.groups.topics import TopicsView


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
        if left == 0 or classic_left < left or left > self._options.group_max_size:
            return None
        gone = {member.member_id for member in leaving}
        stay = [
            (member, member.stored.classic)
            for member in group.members.values()
            if member.member_id not in gone and member.stored.classic is not None
        ]
        protocol = _common_protocol([spoken for _, spoken in stay])
        if protocol is None:
            return None
        record = ClassicGroupStored(
            group.group_id,
            "consumer",
            group.epoch,
            protocol,
            None,
            now_ms,
            tuple(self._stored(member, spoken, protocol) for member, spoken in stay),
        )
        protocols = {member.member_id: spoken.protocols for member, spoken in stay}
        adopted = self._classic.adoption(record, protocols, now_ms, rebalance=True)
        return Result(
            response,
            [*self._consumer.removal(group), *adopted.records],
            [*_ended_timers(group), *adopted.timers],
            adopted.answers,
        )

    def _stored(self, member: Member, spoken: ClassicProtocolStored, protocol: str) -> ClassicMemberStored:
        stored = member.stored
        return ClassicMemberStored(
            stored.member_id,
            stored.instance_id,
            stored.client_id,
            stored.client_host,
            stored.rebalance_timeout_ms,
            spoken.session_timeout_ms,
            dict(spoken.protocols)[protocol],
            assignment_bytes(member.current.assigned, spoken, self._topics),
        )


def _common_protocol(spoken: Sequence[ClassicProtocolStored]) -> str | None:
    """The protocol that everybody speaks and the first member likes best."""
    common = set.intersection(*({name for name, _ in one.protocols} for one in spoken))
    return next((name for name, _ in spoken[0].protocols if name in common), None)


def _ended_timers(group: ConsumerGroup) -> list[SetTimer | CancelTimer]:
    ended: list[SetTimer | CancelTimer] = [
        CancelTimer(("assign", group.group_id)),
        CancelTimer(("regex", group.group_id)),
    ]
    for member_id in group.members:
        ended += member_timers(group.group_id, member_id)
    return ended

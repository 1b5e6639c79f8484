"""What a partition's record in the metadata store asks of one broker process: to lead it, to follow, or neither.

Pure. A process leads only what it was elected for itself: the leadership of an earlier start of the same broker is
over, and until a leader is elected there is none to follow either.
"""

from enum import Enum, auto

from martlet.base.ids import Member
from martlet.cluster.records import PartitionRecord
from martlet.replication.leader import PartitionState


class Role(Enum):
    """What a broker process is to a partition."""

    LEADS = auto()
    FOLLOWS = auto()
    IDLE = auto()
    """It holds a replica, and no broker leads."""
    NONE = auto()
    """It holds no replica, or must not any more."""


def role_of(record: PartitionRecord, me: Member) -> Role:
    """What this process is to the partition."""
    if record.is_led_by(*me):
        return Role.LEADS
    if me.broker not in record.replicas:
        return Role.NONE
    if record.leader is None or record.leader == me.broker:
        return Role.IDLE
    return Role.FOLLOWS


def partition_state(record: PartitionRecord) -> PartitionState:
    """The record as the leader's rules want to see it."""
    return PartitionState(
        replicas=record.replicas,
        leader_epoch=record.leader_epoch,
        in_sync=frozenset(record.isr),
        partition_epoch=record.mod_revision,
        has_eligible=bool(record.elr),
    )

"""In which partitions share groups may stand somewhere, for those who look at that or change it by hand.

Rules: nothing moves a group that has members, they would go on elsewhere; groups of another kind are not found. Where a
group stands in a partition is known by the partition's leader, not here. Handlers import this: it loads nothing of the
machine, which a broker without groups never needs.

Proved by: tests/unit/groups/share/test_standing.py
"""

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.coordinator.result import Result

if TYPE_CHECKING:
    from martlet.groups.share.records import TopicPartitions
    from martlet.groups.share.share_group import ShareGroup
    from martlet.groups.share.share_protocol import ShareProtocol

Known: TypeAlias = "Mapping[TopicId, TopicPartitions]"


def known_partitions(share: "ShareProtocol", group_id: str) -> Result[object, Known]:
    """Those of a group; GROUP_ID_NOT_FOUND."""
    return Result(_existing(share, group_id).known)


def is_deletable(share: "ShareProtocol", group_id: str) -> Result[object, bool]:
    """Whether this is a share group without members."""
    group = share.groups.get(group_id)
    return Result(group is not None and group.is_empty)


def check_movable(share: "ShareProtocol", group_id: str) -> Result[object, Known]:
    """The same of a group without members; NON_EMPTY_GROUP for others."""
    return Result(_movable(share, group_id).known)


def know_partitions(share: "ShareProtocol", group_id: str, topics: "Iterable[TopicPartitions]") -> Result[object, None]:
    """The group may stand somewhere in these as well."""
    return Result(None, share.know(_movable(share, group_id), topics))


def forget_topics(share: "ShareProtocol", group_id: str, topic_ids: Collection[TopicId]) -> Result[object, None]:
    """The group stands nowhere in these topics."""
    return Result(None, share.forget(_movable(share, group_id), topic_ids))


def _existing(share: "ShareProtocol", group_id: str) -> "ShareGroup":
    group = share.groups.get(group_id)
    if group is None:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no share group {group_id[:249]!r}")
    return group


def _movable(share: "ShareProtocol", group_id: str) -> "ShareGroup":
    group = _existing(share, group_id)
    if not group.is_empty:
        raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"share group {group_id[:249]!r} has members")
    return group

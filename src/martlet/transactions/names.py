"""Transactional ids with a meaning: a group of transactions, its owner and its children.

`txg:<name>` is the owner of a group, `txg:<name>#<owner epoch>.<sequence>.<task>.<attempt>` one child of it: what one
attempt of one task writes in one step of the program. All others are plain ids.

Owner and children have one `shard_key`, so that one log, and so one append, decides them all.
"""

import re
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TRANSACTION_GROUP_PREFIX

_SEPARATOR: Final = "#"
_NUMBERS: Final = re.compile(r"(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})\.(0|[1-9][0-9]{0,17})")


class ChildName(NamedTuple):
    """What the id of a child says."""

    owner: str
    owner_epoch: int
    sequence: int
    task: int
    attempt: int


def shard_key(transactional_id: str) -> str:
    """What the partition of `__transaction_state` is chosen by."""
    if transactional_id.startswith(TRANSACTION_GROUP_PREFIX):
        return transactional_id.partition(_SEPARATOR)[0]
    return transactional_id


def is_owner(transactional_id: str) -> bool:
    """Whether the id is that of a group of transactions."""
    return transactional_id.startswith(TRANSACTION_GROUP_PREFIX) and _SEPARATOR not in transactional_id


def child_name(transactional_id: str) -> ChildName | None:
    """What the id says, if it is that of a child; raises INVALID_REQUEST for one that is like it and is none."""
    if not transactional_id.startswith(TRANSACTION_GROUP_PREFIX):
        return None
    owner, separator, suffix = transactional_id.partition(_SEPARATOR)
    if not separator:
        return None
    numbers = _NUMBERS.fullmatch(suffix)
    if numbers is None or owner == TRANSACTION_GROUP_PREFIX:
        form = f"{TRANSACTION_GROUP_PREFIX}<name>#<epoch>.<step>.<task>.<attempt>"
        detail = f"{transactional_id[:100]!r} is no child of a group: {form}"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    epoch, sequence, task, attempt = map(int, numbers.groups())
    return ChildName(owner, epoch, sequence, task, attempt)


def owner_id(group: str) -> str:
    """The transactional id that stands for a group; raises INVALID_REQUEST for a name that none can have."""
    if not group or _SEPARATOR in group:
        detail = f"{group[:100]!r} is no name of a group of transactions: empty, or with a {_SEPARATOR!r} in it"
        raise ApiError(ErrorCode.INVALID_REQUEST, detail)
    return TRANSACTION_GROUP_PREFIX + group

"""When a committed offset is too old to keep.

Rules, which are Kafka's: an offset whose client chose a retention expires by that. Otherwise the broker's retention
counts, from the moment a classic group became empty, or from the commit for simple and consumer groups and for
topics that a live group no longer reads. An offset of a topic the group is subscribed to never expires, and neither
does anything while it is not known what a live group is subscribed to.
"""

from collections.abc import Callable
from typing import NamedTuple

from martlet.groups.offsets.delete import TombstoneBudget
from martlet.groups.offsets.table import CommittedOffset, OffsetTable
from martlet.groups.records import OffsetRemoved


class ExpiryRule(NamedTuple):
    """How the offsets of one group age; a group without a rule keeps everything."""

    is_subscribed: Callable[[str], bool]
    empty_since_ms: int | None = None
    """The retention counts from here; None: from each commit."""


class Expired(NamedTuple):
    """Tombstones for what is too old, and whether the group has no other offset."""

    records: list[OffsetRemoved]
    is_all: bool


def expired_offsets(
    table: OffsetTable, group_id: str, rule: ExpiryRule, *, retention_ms: int, now_ms: int, budget: TombstoneBudget
) -> Expired:
    """What of this group's offsets is to be removed now, as the budget allows."""
    records: list[OffsetRemoved] = []
    is_all = True
    for topic, committed in table.of_group(group_id).items():
        if rule.is_subscribed(topic):
            is_all = False
            continue
        for partition, offset in committed.items():
            if not _is_expired(offset, rule, retention_ms, now_ms):
                is_all = False
            elif budget.take(group_id, topic):
                records.append(OffsetRemoved(group_id, topic, partition))
            else:
                return Expired(records, False)
    return Expired(records, is_all)


def _is_expired(offset: CommittedOffset, rule: ExpiryRule, retention_ms: int, now_ms: int) -> bool:
    if offset.expires_at_ms >= 0:
        return now_ms >= offset.expires_at_ms
    since_ms = offset.committed_at_ms if rule.empty_since_ms is None else rule.empty_since_ms
    return now_ms - since_ms >= retention_ms

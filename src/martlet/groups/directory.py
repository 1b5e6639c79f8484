"""Which groups exist, of any protocol: finding, listing, describing and counting them; nothing changes here.

An id belongs to at most one of the three protocols. A group that has only offsets ("simple": its consumers assign
partitions to themselves) exists in none; it is derived from the offsets, as an empty classic group.
"""

from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple, TypeAlias

from martlet.base.errors import ApiError, ErrorCode
from martlet.groups.classic.answers import described
from martlet.groups.classic.classic_group import CONSUMER_PROTOCOL_TYPE, ClassicGroup
from martlet.groups.classic.classic_protocol import ClassicProtocol
from martlet.groups.consumer.consumer_group import ConsumerGroup
from martlet.groups.consumer.consumer_group_protocol import ConsumerProtocol
from martlet.groups.consumer.description import state_name
from martlet.groups.offsets.removal import ExpiryRule
from martlet.groups.offsets.table import OffsetTable
from martlet.groups.ports import CLASSIC, CONSUMER, DEAD, EMPTY, SHARE, STABLE, GroupsOptions
from martlet.groups.share.share_group import ShareGroup
from martlet.groups.share.share_protocol import SHARE_PROTOCOL_TYPE, ShareProtocol
from martlet.wire.messages import consumer_group_describe, describe_groups, share_group_describe
from martlet.wire.messages.list_groups import ListedGroup

_FIRST_VERSION_WITH_NOT_FOUND = 6


class Simple(NamedTuple):
    """A group that consists of its offsets."""

    group_id: str
    is_empty: bool = True


Group: TypeAlias = ClassicGroup | ConsumerGroup | ShareGroup | Simple


class GroupDirectory:
    """Reads the state of all protocols and of the offsets; owned by the groups machine."""

    def __init__(
        self,
        classic: ClassicProtocol,
        consumer: ConsumerProtocol,
        share: ShareProtocol,
        offsets: OffsetTable,
        options: GroupsOptions,
    ) -> None:
        self._classic = classic
        self._consumer = consumer
        self._share = share
        self._offsets = offsets
        self._options = options

    def check_group_id(self, group_id: str, *, may_be_empty: bool = False) -> None:
        """Refuse a name that no group can have. Kafka lets some old requests use the empty name."""
        if not group_id and not may_be_empty:
            raise ApiError(ErrorCode.INVALID_GROUP_ID, "the name of the group is empty")
        limit = self._options.group_id_bytes_max
        if len(group_id) > limit or (len(group_id) * 4 > limit and len(group_id.encode()) > limit):
            raise ApiError(ErrorCode.INVALID_GROUP_ID, f"the name of the group is longer than {limit} bytes")

    def find(self, group_id: str) -> Group | None:
        """The group, or None when it has neither members, nor a history, nor offsets."""
        classic = self._classic.groups.get(group_id)
        if classic is not None:
            return classic
        consumer = self._consumer.groups.get(group_id)
        if consumer is not None:
            return consumer
        share = self._share.groups.get(group_id)
        if share is not None:
            return share
        return Simple(group_id) if group_id in self._offsets else None

    def existing(self, group_id: str) -> Group:
        """The group; GROUP_ID_NOT_FOUND when there is none."""
        group = self.find(group_id)
        if group is None:
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return group

    def is_subscribed(self, group: Group, topic: str) -> bool:
        """Whether members read this topic, as far as is known; when in doubt a group of consumers does."""
        if isinstance(group, Simple):
            return False
        topics = group.subscribed_topics()
        if topics is None:
            return isinstance(group, ClassicGroup) and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        return topic in topics

    def expiry_rule(self, group: Group) -> ExpiryRule | None:
        """How the group's offsets age; None: they do not, for now."""
        if isinstance(group, ShareGroup):
            return None
        if isinstance(group, Simple) or (isinstance(group, ClassicGroup) and not group.protocol_type):
            return ExpiryRule(lambda topic: False)
        topics = group.subscribed_topics()
        if isinstance(group, ConsumerGroup):
            return None if topics is None else ExpiryRule(topics.__contains__)
        if group.is_empty:
            return ExpiryRule(lambda topic: False, group.changed_at_ms if group.changed_at_ms > 0 else None)
        is_known = group.protocol_type == CONSUMER_PROTOCOL_TYPE and group.state.value == STABLE
        return ExpiryRule(topics.__contains__) if is_known and topics is not None else None

    def ids(self) -> set[str]:
        """Every group of any kind."""
        return {*self._classic.groups, *self._consumer.groups, *self._share.groups, *self._offsets.group_ids()}

    def listed(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        """By name; filters do not care about case, an empty one lets everything pass, an unknown word nothing."""
        wanted_states = {state.lower() for state in states}
        wanted_types = {type_.lower() for type_ in types}
        groups = [
            group
            for group in self._all()
            if (not wanted_states or group.group_state.lower() in wanted_states)
            and (not wanted_types or group.group_type in wanted_types)
        ]
        groups.sort(key=lambda group: group.group_id)
        return groups

    def statistics(self) -> dict[tuple[str, str], int]:
        """How many groups there are by type and state."""
        counts = Counter((CLASSIC, group.state.value) for group in self._classic.groups.values())
        counts.update((CONSUMER, state_name(group)) for group in self._consumer.groups.values())
        counts.update((SHARE, self._share.state_name(group)) for group in self._share.groups.values())
        simple = sum(1 for _ in self._simple_ids())
        if simple:
            counts[CLASSIC, EMPTY] += simple
        return dict(counts)

    def member_counts(self) -> Iterator[tuple[str, int]]:
        """Every group that is more than its offsets, with the number of its members."""
        for group_id, classic in self._classic.groups.items():
            yield group_id, len(classic.members)
        for group_id, consumer in self._consumer.groups.items():
            yield group_id, len(consumer.members)
        for group_id, share in self._share.groups.items():
            yield group_id, len(share.members)

    def _all(self) -> Iterator[ListedGroup]:
        for group_id, group in self._classic.groups.items():
            yield ListedGroup(group_id, group.protocol_type or "", group.state.value, CLASSIC)
        for group_id, consumer_group in self._consumer.groups.items():
            state = state_name(consumer_group)
            yield ListedGroup(group_id, CONSUMER_PROTOCOL_TYPE, state, CONSUMER)
        for group_id, share_group in self._share.groups.items():
            yield ListedGroup(group_id, SHARE_PROTOCOL_TYPE, self._share.state_name(share_group), SHARE)
        for group_id in self._simple_ids():
            yield ListedGroup(group_id, "", EMPTY, CLASSIC)

    def _simple_ids(self) -> Iterator[str]:
        """Groups that consist of their offsets."""
        others = (self._classic.groups, self._consumer.groups, self._share.groups)
        return (id_ for id_ in self._offsets.group_ids() if not any(id_ in groups for groups in others))

    def described(self, group_id: str, version: int) -> describe_groups.DescribedGroup:
        """In the words of the classic protocol; as in Kafka a consumer group cannot be described so."""
        group = self.find(group_id)
        if isinstance(group, ClassicGroup):
            return described(group)
        if isinstance(group, Simple):
            return describe_groups.DescribedGroup(group_id=group_id, group_state=EMPTY)
        dead = describe_groups.DescribedGroup(group_id=group_id, group_state=DEAD)
        if version >= _FIRST_VERSION_WITH_NOT_FOUND:
            dead.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            reason = "there is no group" if group is None else "not a classic group:"
            dead.error_message = f"{reason} {group_id!r}"
        return dead

    def described_consumer_group(self, group_id: str) -> consumer_group_describe.DescribedGroup:
        """In the words of the consumer protocol; GROUP_ID_NOT_FOUND for groups of the other kind."""
        group = self.existing(group_id)
        if not isinstance(group, ConsumerGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"not a consumer group: {group_id!r}")
        return self._consumer.describe(group)

    def existing_share_group(self, group_id: str) -> ShareGroup:
        """The share group; GROUP_ID_NOT_FOUND for groups of another kind."""
        group = self.existing(group_id)
        if not isinstance(group, ShareGroup):
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"not a share group: {group_id!r}")
        return group

    def described_share_group(self, group_id: str) -> share_group_describe.DescribedGroup:
        """In the words of the share protocol; GROUP_ID_NOT_FOUND for groups of another kind."""
        return self._share.describe(self.existing_share_group(group_id))

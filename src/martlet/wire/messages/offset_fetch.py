"""OffsetFetch (key 9): how far groups have committed.

Versions 1–10. v2 allows null for "all topics" and adds an error for the whole answer; v3 throttling; v5 leader epochs;
v6 is the first flexible one; v7 adds the wish not to be shown offsets a transaction may still change; v8 asks for
several groups at once, with new structs in both directions; v9 adds the member and its epoch, for consumer groups; v10
names topics by id instead of by name.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class OffsetFetchRequestTopic:
    """Partitions of one topic, until v7."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@message
class OffsetFetchRequestTopics:
    """Partitions of one topic, from v8 on."""

    name: str = ""  # v8–v9
    topic_id: bytes = bytes(16)  # v10+
    partition_indexes: list[int] = field(default_factory=list)


@message
class OffsetFetchRequestGroup:
    """One group, from v8 on: topics of None are all; an epoch of -1 is a client that is no member."""

    group_id: str = ""
    member_id: str | None = None  # v9+
    member_epoch: int = -1  # v9+
    topics: list[OffsetFetchRequestTopics] | None = field(default_factory=list)


@message
class OffsetFetchRequest:
    """What is asked: `group_id` and `topics` (None, from v2 on: all) until v7, `groups` from v8 on."""

    group_id: str = ""  # until v7
    topics: list[OffsetFetchRequestTopic] | None = field(default_factory=list)  # until v7
    groups: list[OffsetFetchRequestGroup] = field(default_factory=list)  # v8+
    require_stable: bool = False  # v7+


@message
class OffsetFetchResponsePartition:
    """What was committed for one partition, until v7; an offset of -1 is nothing."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1  # v5+
    metadata: str | None = None
    error_code: int = 0


@message
class OffsetFetchResponseTopic:
    """The answers for one topic, until v7."""

    name: str = ""
    partitions: list[OffsetFetchResponsePartition] = field(default_factory=list)


@message
class OffsetFetchResponsePartitions:
    """What was committed for one partition, from v8 on; an offset of -1 is nothing."""

    partition_index: int = 0
    committed_offset: int = 0
    committed_leader_epoch: int = -1
    metadata: str | None = None
    error_code: int = 0


@message
class OffsetFetchResponseTopics:
    """The answers for one topic, from v8 on."""

    name: str = ""  # v8–v9
    topic_id: bytes = bytes(16)  # v10+
    partitions: list[OffsetFetchResponsePartitions] = field(default_factory=list)


@message
class OffsetFetchResponseGroup:
    """The answers for one group, from v8 on."""

    group_id: str = ""
    topics: list[OffsetFetchResponseTopics] = field(default_factory=list)
    error_code: int = 0


@message
class OffsetFetchResponse:
    """The answers: `topics` and `error_code` (v2+) until v7, `groups` from v8 on."""

    throttle_time_ms: int = 0  # v3+
    topics: list[OffsetFetchResponseTopic] = field(default_factory=list)  # until v7
    error_code: int = 0  # v2–v7
    groups: list[OffsetFetchResponseGroup] = field(default_factory=list)  # v8+

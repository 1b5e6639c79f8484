"""The volatile records of the offsets: what this process has to remember and no other has to know."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TopicsForgotten:
    """These topics were deleted and not all of their offsets could be removed at once; the rest follows."""

    topics: frozenset[str]
    deleted_at_ms: int


@dataclass(frozen=True, slots=True)
class TopicsCleared:
    """The offsets that were left over from deleted topics are gone."""

    topics: frozenset[str]

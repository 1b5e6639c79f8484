"""What the groups machine may know of the cluster's topics: a read-only view, handed in by the broker."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from martlet.base.ids import TopicId


@dataclass(frozen=True, slots=True)
class TopicView:
    """One topic; `racks` holds, for each partition, the racks its replicas stand in (empty: none known)."""

    id: TopicId
    name: str
    partition_count: int
    racks: tuple[frozenset[str], ...] = ()


class TopicsView(Protocol):
    """The topics that exist now."""

    def topic(self, name: str) -> TopicView | None: ...

    def topic_by_id(self, topic_id: TopicId) -> TopicView | None: ...

    def names(self) -> Iterable[str]:
        """Names of all topics a client may subscribe to (internal ones excluded)."""
        ...

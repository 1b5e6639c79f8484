"""What the acknowledgements of one request have come to: applied at once, answered when they are committed.

Rules: all that is said of a partition is applied or refused as a whole, in however many places of the request it
stands; what is refused in one partition leaves the others alone.

Proved by: tests/broker/test_share_apis.py, tests/clients/test_share_confluent.py
"""

from collections.abc import Awaitable, Callable, Iterable

from martlet.base.errors import ApiError
from martlet.base.ids import TopicId
from martlet.broker.queueing.doors import PartitionQueue
from martlet.queues.share.acknowledgements import settlements_of
from martlet.queues.share.sessions import SharePartition
from martlet.wire.share_fetch import Run, SharePartitionAsked

FindQueue = Callable[[SharePartition], PartitionQueue]
"""The queue of a partition for the member that asks; raises ApiError."""


class Acknowledgements:
    """Of one request; `outcome` says for each partition that carried some what has become of them."""

    def __init__(self, member_id: str, find: FindQueue, *, may_renew: bool) -> None:
        self.outcome: dict[SharePartition, ApiError | None] = {}
        self._member_id = member_id
        self._find = find
        self._may_renew = may_renew
        self._uncommitted: list[tuple[SharePartition, Awaitable[None]]] = []

    def apply(self, asked: Iterable[SharePartitionAsked]) -> None:
        """Take all of them over."""
        said: dict[SharePartition, list[Run]] = {}
        for one in asked:
            if one.acknowledgements:
                partition = SharePartition(TopicId(one.topic_id), one.partition)
                if partition in said:
                    said[partition] = sorted((*said[partition], *one.acknowledgements))
                else:
                    said[partition] = one.acknowledgements
        for partition, runs in said.items():
            self.outcome[partition] = None
            try:
                settlements = settlements_of(runs, may_renew=self._may_renew)
                stored = self._find(partition).settle(self._member_id, settlements)
            except ApiError as error:
                self.outcome[partition] = error
            else:
                self._uncommitted.append((partition, stored))

    async def committed(self) -> None:
        """Wait until all that was applied is committed; what cannot be is an error of its partition."""
        for partition, stored in self._uncommitted:
            try:
                await stored
            except ApiError as error:
                self.outcome[partition] = error

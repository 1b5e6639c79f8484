"""The door of Kafka's share protocol: its sessions on this broker, and the release of what a member had when one ends.

Rules: a session that its client closes gives its leases back as not delivered, they do not count as attempts; so does
an answer that could not be sent. One that ends with its connection gives them back as attempts that failed: a message
that kills its worker would kill one after the other otherwise, for ever.

Proved by: tests/broker/test_share_apis.py, tests/clients/test_share_confluent.py
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from functools import partial
from typing import Any, Final

from martlet.base.errors import ApiError
from martlet.broker.ground.request import Link
from martlet.broker.queueing.doors import QueueDoors
from martlet.broker.queueing.share_standings import ShareStandings
from martlet.queues.share.sessions import SessionKey, SharePartition, ShareSession, ShareSessions

_GRACE_SECONDS: Final = 5.0


class ShareDoor:
    """Lives on the broker's event loop until `aclose`."""

    def __init__(self, queues: QueueDoors, standings: ShareStandings) -> None:
        self.standings = standings
        self.sessions = ShareSessions()
        self._queues = queues
        self._tasks: set[asyncio.Task[None]] = set()
        self._watched: set[int] = set()
        self._waiting: Counter[tuple[str, SharePartition]] = Counter()
        """Fetches that wait now, by group and partition."""

    def start(self) -> None:
        """Nothing runs before the first request."""

    async def aclose(self) -> None:
        """Leave off with what waits."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def connection_of(self, link: Link) -> int:
        """The connection as sessions know it; they end with it."""
        connection = id(link)
        if connection not in self._watched:
            self._watched.add(connection)
            link.on_closed.append(partial(self._connection_closed, connection))
        return connection

    def close(self, session: ShareSession) -> None:
        """The client has ended its session."""
        self.sessions.close(session)
        self._release(session, was_delivered=False)

    def member_left(self, group_id: str, member_id: str) -> None:
        """The member is none any more; one that leaves by itself may be about to close its session."""
        session = self.sessions.get(SessionKey(group_id, member_id))
        if session is not None:
            end = partial(self._member_is_gone, session, session.epoch)
            asyncio.get_running_loop().call_later(_GRACE_SECONDS, end)

    def _member_is_gone(self, session: ShareSession, epoch: int) -> None:
        """End a session that has been silent since its member was removed; another one is at work again."""
        if self.sessions.is_open(session) and session.epoch == epoch:
            self.sessions.close(session)
            self._release(session, was_delivered=True)

    def waiting(self, group_id: str, partition: SharePartition) -> int:
        """How many fetches of a group wait for something of a partition."""
        return self._waiting[group_id, partition]

    @contextlib.contextmanager
    def counted(self, group_id: str, partitions: Iterable[SharePartition]) -> Iterator[None]:
        """While a fetch waits."""
        keys = [(group_id, partition) for partition in partitions]
        self._waiting.update(keys)
        try:
            yield
        finally:
            for key in keys:
                self._waiting[key] -= 1
                if not self._waiting[key]:
                    del self._waiting[key]

    def give_back(self, session: ShareSession, partition: SharePartition) -> None:
        """What the member has there cannot reach it."""
        self._release_at(session, partition, was_delivered=False)

    def _connection_closed(self, connection: int) -> None:
        self._watched.discard(connection)
        for session in self.sessions.connection_closed(connection):
            self._release(session, was_delivered=True)

    def _release(self, session: ShareSession, *, was_delivered: bool) -> None:
        for partition in session.leased:
            self._release_at(session, partition, was_delivered=was_delivered)

    def _release_at(self, session: ShareSession, partition: SharePartition, *, was_delivered: bool) -> None:
        group_id, member_id = session.key
        try:
            queue = self._queues.find(partition.topic_id, partition.partition, group_id)
            stored = queue.release_holder(member_id, was_delivered=was_delivered)
        except ApiError:
            return  # it is served elsewhere now, where nothing is leased yet
        self._start(_settled(stored))

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="martlet-share")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _settled(stored: Awaitable[None]) -> None:
    """Wait until it is committed; if it cannot be stored the lease ends by its time."""
    try:
        await stored
    except ApiError:
        return

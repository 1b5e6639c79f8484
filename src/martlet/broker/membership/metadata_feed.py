"""Keeps the broker's metadata image in step with the store, and notifies its listeners of what has changed.

Rules: the feed's task is the only writer of the image. Listeners are plain functions called on the event loop, in the
order in which they were added, after the image has taken a step and before anybody who waits for that step is
woken: when an admin call returns, this broker has already acted on it. A listener that raises ends the feed.

How it works: `start` lists the whole store into the image and then watches from that revision on. A history that the
store has forgotten means listing again; a store that cannot be reached, or whose disk is full (reading a file may end
leases), is tried again. Anything else ends the feed, fails all waiters and is reported to `on_failure`, once. So does a
store that no longer holds the cluster it held: no listener hears what else is gone with it, because a deletion of the
metadata, by mistake perhaps, has not asked for the messages to be deleted.

Proved by: tests/unit/broker/membership/test_metadata_feed.py
"""

import asyncio
import heapq
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final, cast

from martlet.base.errors import DiskFull
from martlet.base.invariant import invariant
from martlet.cluster.image import ImageDelta, MetadataImage
from martlet.cluster.keys import CLUSTER_KEY
from martlet.cluster.records import ClusterRecord, decode_record
from martlet.cluster.store import (
    Entry,
    Listing,
    MetaStore,
    RevisionCompacted,
    StoreClosed,
    StoreReplaced,
    StoreUnavailable,
)

logger = logging.getLogger(__name__)

Listener = Callable[[ImageDelta], None]

_RETRY_SECONDS: Final = 0.5


class MetadataFeed:
    """Owner of the image; lives from `start` to `aclose` on the broker's event loop."""

    def __init__(
        self,
        store: MetaStore,
        image: MetadataImage,
        *,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.image = image
        self._store = store
        self._on_failure = on_failure
        self._listeners: list[Listener] = []
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []
        self._waiter_count = 0
        self._task: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._is_away = False

    def add_listener(self, listener: Listener) -> None:
        """Hear of every change from now on; the first listing at `start` counts as a change too."""
        self._listeners.append(listener)

    async def start(self) -> None:
        """Fill the image and begin to follow the store."""
        invariant(self._task is None, "a metadata feed is started once")
        self._publish(self.image.load(await self._list()))
        self._task = asyncio.create_task(self._follow(), name="metadata-feed")
        self._task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        """Stop following; those that still wait find the store closed."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        self._fail_waiters(StoreClosed("the broker is stopping"))

    async def wait_applied(self, revision: int) -> None:
        """Return once the image has reached the revision and every listener has heard of it."""
        if self._failure is not None:
            raise self._failure
        if revision <= self.image.revision:
            return
        future = asyncio.get_running_loop().create_future()
        self._waiter_count += 1
        heapq.heappush(self._waiters, (revision, self._waiter_count, future))
        await future

    async def _follow(self) -> None:
        while True:
            try:
                await self._follow_watch()
            except RevisionCompacted as error:
                logger.info("metadata: %s; listing again from revision %d", error, self.image.revision)
                await self._list_again()
            except (StoreUnavailable, DiskFull) as error:
                await self._pause_after(error)

    async def _follow_watch(self) -> None:
        async with aclosing(self._store.watch("", self.image.revision)) as changes:
            async for change in changes:
                for event in change.events:
                    if event.key == CLUSTER_KEY:
                        self._check_cluster(event.entry)
                self._publish(self.image.apply(change))
        raise StoreClosed("the metadata store was closed while the broker ran")

    async def _list_again(self) -> None:
        try:
            self._publish(self.image.load(await self._list()))
        except (StoreUnavailable, DiskFull) as error:
            # The watch will find the history missing once more, and lead back here.
            await self._pause_after(error)

    async def _list(self) -> Listing:
        listing = await self._store.list("")
        self._check_cluster(next((entry for entry in listing.entries if entry.key == CLUSTER_KEY), None))
        return listing

    def _check_cluster(self, entry: Entry | None) -> None:
        """Before the image takes a step: the store still holds the cluster that it held."""
        known = self.image.cluster_id
        found = decode_record(ClusterRecord, entry).cluster_id if entry is not None else ""
        if known and found != known:
            there = f"that of cluster {found}" if found else "nothing"
            raise StoreReplaced(
                f"the metadata of cluster {known} is gone, {there} is in its place: bring it back; no log was touched"
            )

    async def _pause_after(self, error: Exception) -> None:
        if not self._is_away:
            self._is_away = True
            logger.warning("metadata: %s; trying again until it is there", error)
        await asyncio.sleep(_RETRY_SECONDS)

    def _publish(self, delta: ImageDelta) -> None:
        if self._is_away:
            self._is_away = False
            logger.info("metadata: the store is followed again, from revision %d on", delta.revision)
        if delta.has_changes:
            for listener in self._listeners:
                listener(delta)
        while self._waiters and self._waiters[0][0] <= delta.revision:
            _, _, future = heapq.heappop(self._waiters)
            if not future.done():
                future.set_result(None)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            return
        self._failure = cast(BaseException, task.exception())
        self._fail_waiters(self._failure)
        self._on_failure(self._failure)

    def _fail_waiters(self, error: BaseException) -> None:
        waiters, self._waiters = self._waiters, []
        for _, _, future in waiters:
            if not future.done():
                future.set_exception(error)

"""Commits to the metadata store for those parts of a broker that act by themselves, without a client who waits.

Rules: returns only when this broker's image has what was committed, or what was faster. The store's errors come out as
they are. A lost answer is never tried again here: the caller reads back and decides again.

Proved by: tests/unit/broker/administration/test_controller.py, tests/unit/broker/leading/test_in_sync_keeper.py
"""

from martlet.broker.membership.metadata_feed import MetadataFeed
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import CLUSTER_KEY
from martlet.cluster.store import CommitPlan, LeaseId, MetaStore, commit_plan


class MetadataCommits:
    """One broker's hand on the store; for any number of tasks of its event loop."""

    def __init__(self, store: MetaStore, feed: MetadataFeed) -> None:
        self.store = store
        self._feed = feed

    @property
    def image(self) -> MetadataImage:
        return self._feed.image

    async def commit(self, plan: CommitPlan, *, lease: LeaseId | None = None) -> bool:
        """Whether it was carried out; the image shows why not."""
        result = await commit_plan(self.store, plan, lease=lease)
        await self._feed.wait_applied(result.revision)
        return result.succeeded

    async def catch_up(self) -> None:
        """Bring the image to what the store holds now: after this, a commit without an answer shows, if it happened.

        It may still happen later, unless what it compared has changed.
        """
        await self._feed.wait_applied((await self.store.list(CLUSTER_KEY)).revision)

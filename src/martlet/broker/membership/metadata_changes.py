"""Changes to the cluster's metadata on behalf of a client: decide from the image, commit, decide again when overtaken.

Rules: what to commit is decided by pure functions of `martlet.cluster`. A call either returns after this broker's image
has the change, or raises ApiError, also when the store fails or is full.

How it works: a decision compares the revisions it is based on. If another commit was faster, the image is brought up to
it and the decision is made again. If the outcome of a commit is unknown, the image is brought up to the store's present
revision first; decisions are such that making one twice does no harm.

Proved by: tests/unit/broker/administration/test_topic_admin.py,
tests/unit/broker/administration/test_topic_admin_faults.py
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from martlet.base.errors import ApiError, ErrorCode, StorageFailure
from martlet.broker.membership.metadata_feed import MetadataFeed
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import CLUSTER_KEY
from martlet.cluster.store import (
    CommitPlan,
    CommitResult,
    Entry,
    MetaStore,
    StoreClosed,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    UnknownOutcome,
    commit_plan,
)

logger = logging.getLogger(__name__)

_ATTEMPTS_MAX: Final = 20
"""A decision that loses its comparison this often meets something else than rivals."""


class MetadataChanges:
    """One broker's access to the store for clients who wait; for any number of tasks of its event loop."""

    def __init__(self, store: MetaStore, feed: MetadataFeed) -> None:
        self._store = store
        self._feed = feed

    @property
    def image(self) -> MetadataImage:
        return self._feed.image

    def attempts(self) -> Iterator[int]:
        """The numbers of the attempts that a decision gets; raises ApiError after the last one."""
        yield from range(_ATTEMPTS_MAX)
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the cluster's metadata changed {_ATTEMPTS_MAX} times in between")

    async def execute(self, decide: Callable[[], CommitPlan | None]) -> bool:
        """Commit what is decided, deciding again whenever another commit was faster; False: there was nothing to do."""
        for _ in self.attempts():
            plan = decide()
            if plan is None:
                return False
            if await self.commit(plan) is not None:
                break
        return True

    async def commit(self, plan: CommitPlan, *, wait: bool = True) -> CommitResult | None:
        """The result once the image has it; None, with the image up to date, when it must be decided again."""
        with _as_api_errors():
            try:
                result = await commit_plan(self._store, plan)
            except UnknownOutcome as error:
                logger.warning("metadata: %s; reading back", error)
                await self.catch_up()
                return None
            if wait or not result.succeeded:
                await self._feed.wait_applied(result.revision)
        return result if result.succeeded else None

    async def commit_all(self, plans: Iterable[CommitPlan], *, wait_for_each: bool = True) -> bool:
        """Commit one plan after the other; False when one lost its comparison, the rest being left out."""
        last: CommitResult | None = None
        for plan in plans:
            last = await self.commit(plan, wait=wait_for_each)
            if last is None:
                return False
        if last is not None:
            await self._feed.wait_applied(last.revision)
        return True

    async def catch_up(self) -> int:
        """Bring the image to what the store holds now; returns the revision of that."""
        with _as_api_errors():
            revision = (await self._store.list(CLUSTER_KEY)).revision
            await self._feed.wait_applied(revision)
        return revision

    async def wait_applied(self, revision: int) -> None:
        """Return when the image has this revision."""
        await self._feed.wait_applied(revision)

    async def get(self, key: str) -> Entry | None:
        """What the store holds under a key now."""
        with _as_api_errors():
            return await self._store.get(key)

    async def list(self, prefix: str) -> Sequence[Entry]:
        """What the store holds under a prefix now."""
        with _as_api_errors():
            return (await self._store.list(prefix)).entries


@contextmanager
def _as_api_errors() -> Iterator[None]:
    """A store out of reach, without space, or closed because the broker stops: the client may try again later.

    One that refuses this broker, or was replaced by another, needs a person; the metadata feed ends the broker.
    """
    try:
        yield
    except (StoreUnavailable, StoreClosed) as error:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT, str(error)) from error
    except (StorageFailure, StoreRefused, StoreReplaced) as error:
        raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error

"""Takes damaged replicas on this broker out of all that counts on them, so that they can be copied again.

Rules: what may be stored is decided by `plan_resignation`; here is only the way to the store. The replica itself is
replaced by the partition table, when the image says that nothing counts on it any more, whatever brought that about.

How it works: the table knows which replicas are damaged, from a first fault until it has another replica in that place,
or none. Each is tried once a second: a complete replica may come back, and an answer that was lost shows in the image.

Proved by: tests/unit/broker/administration/test_damaged_copies.py
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from martlet.base.errors import DiskFull
from martlet.base.ids import Member, TopicPartition
from martlet.broker.membership.metadata_commits import MetadataCommits
from martlet.cluster.controller_decisions import topic_rules
from martlet.cluster.liveness import read_states
from martlet.cluster.resignation import plan_resignation
from martlet.cluster.store import CommitPlan, StoreClosed, StoreUnavailable, UnknownOutcome
from martlet.configs.effective import BrokerLayers

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 1.0


class DamagedReplica(Protocol):
    """A partition as far as its damage goes."""

    @property
    def name(self) -> TopicPartition: ...


class DamagedTable(Protocol):
    """Where the replicas on this broker are found."""

    def damaged(self) -> Sequence[DamagedReplica]: ...


class DamagedReplicas:
    """One task from `start` to `aclose`."""

    def __init__(
        self,
        me: Member,
        table: DamagedTable,
        commits: MetadataCommits,
        layers: Callable[[], BrokerLayers],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._me = me
        self._table = table
        self._commits = commits
        self._layers = layers
        self._on_failure = on_failure
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="martlet-damaged-replicas")
        self._task.add_done_callback(self._ended)

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def found(self, replica: DamagedReplica) -> bool:
        """This replica is damaged; whether it can be given up as things are. Where it cannot yet, it is tried again."""
        self._wake.set()
        return self._plan(replica.name) is not None

    # --- the task

    async def _run(self) -> None:
        while True:
            for replica in self._table.damaged():
                plan = self._plan(replica.name)
                if plan is not None:
                    await self._commit(replica.name, plan)
            if self._table.damaged():
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._wake.clear()
                await self._wake.wait()

    def _plan(self, name: TopicPartition) -> CommitPlan | None:
        image = self._commits.image
        topic, record = image.topic(name.topic), image.partition(*name)
        if topic is None or record is None or len(record.replicas) == 1:
            return None
        rules = topic_rules(topic, self._layers())
        return plan_resignation(name.topic, record, self._me, image, read_states(image), rules)

    async def _commit(self, name: TopicPartition, plan: CommitPlan) -> None:
        """The image tells the table what came of it."""
        try:
            await self._commits.commit(plan)
        except UnknownOutcome as error:
            logger.warning("giving %s up: %s; reading back", name, error)
            with contextlib.suppress(StoreUnavailable, DiskFull):
                await self._commits.catch_up()
        except (StoreUnavailable, DiskFull) as error:
            logger.debug("the damaged replica of %s is given up later: %s", name, error)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            self._on_failure(error)

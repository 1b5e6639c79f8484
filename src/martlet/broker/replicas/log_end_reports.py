"""Says how far the logs of this broker go where nobody complete is left to lead, for whoever has to choose a leader.

Rules: what is to be said and how is decided by `martlet.cluster.log_ends`; here is the reading of the logs and the
commit. A commit that lost its comparison, or its answer, is decided again from what the image shows then.

Proved by: tests/unit/broker/test_log_end_reports.py
"""

import asyncio
import logging
from collections.abc import Callable
from itertools import islice
from typing import Final

from martlet.base.errors import DiskFull
from martlet.base.ids import LeaderEpoch, Member, TopicPartition
from martlet.broker.membership.metadata_commits import MetadataCommits
from martlet.cluster.image import ImageDelta
from martlet.cluster.liveness import read_states
from martlet.cluster.log_ends import REPORTS_MAX, plan_reports, unreported
from martlet.cluster.records import LogEnd
from martlet.cluster.store import StoreClosed, StoreUnavailable, UnknownOutcome
from martlet.log.log_directory import LogDirectory

logger = logging.getLogger(__name__)

_RETRY_SECONDS: Final = 0.5
_NOTHING: Final = (LeaderEpoch(-1), 0)


class LogEndReports:
    """One task from `start` to `aclose`."""

    def __init__(
        self, me: Member, commits: MetadataCommits, logs: LogDirectory, on_failure: Callable[[BaseException], None]
    ) -> None:
        self._me = me
        self._commits = commits
        self._logs = logs
        self._on_failure = on_failure
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="martlet-log-ends")
        self._task.add_done_callback(self._ended)
        self._wake.set()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def follow(self, delta: ImageDelta) -> None:
        """A step of the image: look again if a partition may have lost its last candidate."""
        lost = any(change.after is not None and change.after.leader is None for change in delta.partitions)
        if lost or delta.live or delta.brokers:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while await self._report_some():
                    pass
            except (StoreUnavailable, UnknownOutcome, DiskFull) as error:
                logger.debug("where logs end is said later: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def _report_some(self) -> bool:
        """Say it of as many as one commit takes; whether there was anything to say."""
        image = self._commits.image
        broker = image.broker(self._me.broker)
        if broker is None or broker.incarnation != self._me.incarnation:
            return False
        asked = list(islice(unreported(image, read_states(image), self._me), REPORTS_MAX))
        if asked:
            reports = [(partition, LogEnd(*self._me, *self._end_of(name))) for name, partition in asked]
            await self._commits.commit(plan_reports(reports, broker))
        return bool(asked)

    def _end_of(self, name: TopicPartition) -> tuple[LeaderEpoch, int]:
        log = self._logs.get(name)
        if log is None or log.end_offset == log.log_start_offset:
            return _NOTHING if log is None else (_NOTHING[0], log.end_offset)
        return LeaderEpoch(log.epochs.epoch_at(log.end_offset - 1)), log.end_offset

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            self._on_failure(error)

"""Reports how far the logs of this broker go where no complete replica is left, for the operator who has to choose one.

Rules: what is to be said and how is decided by `martlet.cluster.log_ends`; here is the reading of the logs and the
commit. A commit that lost its comparison, or its answer, is decided again from what the image shows then.

Proved by: tests/unit/broker/administration/test_log_end_reports.py
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from martlet.base.errors import DiskFull
from martlet.base.ids import LeaderEpoch, Member, TopicPartition
from martlet.broker.membership.metadata_commits import MetadataCommits
from martlet.cluster.image import ImageDelta
from martlet.cluster.liveness import read_states
from martlet.cluster.log_ends import REPORTS_MAX, is_asked, plan_reports, unreported
from martlet.cluster.records import BrokerRecord, LogEnd
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
        """A step of the image: check again if a partition may have lost its last candidate."""
        lost = any(change.after is not None and change.after.leader is None for change in delta.partitions)
        if lost or delta.live or delta.brokers:
            self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while await self._report_all():
                    pass
            except (StoreUnavailable, UnknownOutcome, DiskFull) as error:
                logger.debug("where logs end is said later: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._wake.set()

    async def _report_all(self) -> bool:
        """Say it once of each that is asked for, in portions; whether there was anything to say."""
        image = self._commits.image
        if self._registration() is None:
            return False
        asked = [name for name, _ in unreported(image, read_states(image), self._me)]
        # Each broker begins elsewhere: two that report the same partitions at the same time must repeat it.
        first = self._me.broker * REPORTS_MAX % max(1, len(asked))
        names = asked[first:] + asked[:first]
        for position in range(0, len(names), REPORTS_MAX):
            await self._report(names[position : position + REPORTS_MAX])
        return bool(asked)

    async def _report(self, names: Sequence[TopicPartition]) -> None:
        """Say it of those that still ask for it."""
        image, broker = self._commits.image, self._registration()
        if broker is None:
            return
        states = read_states(image)
        found = [(name, image.partition(*name)) for name in names]
        reports = [
            (partition, LogEnd(*self._me, *self._end_of(name, partition.leader_epoch)))
            for name, partition in found
            if partition is not None and is_asked(partition, states, self._me)
        ]
        if reports:
            await self._commits.commit(plan_reports(reports, broker))

    def _registration(self) -> BrokerRecord | None:
        """This very process's; None once another one has taken its place."""
        broker = self._commits.image.broker(self._me.broker)
        return broker if broker is not None and broker.incarnation == self._me.incarnation else None

    def _end_of(self, name: TopicPartition, newest: LeaderEpoch) -> tuple[LeaderEpoch, int]:
        log = self._logs.get(name)
        if log is None:
            return _NOTHING
        if log.end_offset == log.log_start_offset or log.epochs.latest_epoch > newest:
            return _NOTHING[0], log.end_offset  # an epoch that never was comes from damage, and must not win
        return LeaderEpoch(log.epochs.epoch_at(log.end_offset - 1)), log.end_offset

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            self._on_failure(error)

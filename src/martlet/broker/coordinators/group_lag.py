"""How far groups are behind, in messages and in seconds, as metrics that an autoscaler can follow.

How it works: every few seconds all committed offsets are compared with the high watermarks of the partitions led here.
The age of the oldest unread message needs its timestamp, which is in the log: it is read when the first unread offset
has left the batch read last, from the batch's header where that is near enough, otherwise from its records; what is not
in the page cache is read in a thread. Between two groups the event loop gets its turn.

Rules: (LAG-1) the number of series is bounded, whatever groups there are: groups past the limit, and topics of a group
past theirs, are counted together. (LAG-2) A group or topic that is gone takes its series with it at the next turn.
A scrape only hands out what the last turn has found.

Proved by: tests/unit/broker/coordinators/test_group_lag.py
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple, Protocol

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, StorageFailure
from martlet.broker.partitions.partition import Partition
from martlet.log.batch_cleaning import DELETE_HORIZON_BIT
from martlet.log.log_slice import LogSlice
from martlet.observe.metrics import OTHER_TOPICS, BrokerMetrics
from martlet.wire.batch import HEADER_BYTES, BatchHeader, read_batch_header
from martlet.wire.records.index import index_records, unpack_batches

logger = logging.getLogger(__name__)

OTHER: Final = OTHER_TOPICS
"""The label that gathers what has no series of its own."""

TOPICS_PER_GROUP_MAX: Final = 50
LABEL_CHARACTERS_MAX: Final = 255
"""A group with a longer name has no series of its own."""

OFFSETS_PER_TURN: Final = 200
"""After this number of partitions the event loop gets its turn."""

SPREAD_MS_MAX: Final = 500
"""A batch that spans no more time is taken for as old as its first record; a longer one is opened."""

_RUNS_MAX: Final = 100
_OPENED_BYTES_MAX: Final = 64 << 20
_LONG_READ_BYTES: Final = 16_384


class CommittedOffsets(Protocol):
    """What is asked of a groups machine."""

    def committed_offsets(self) -> Iterator[tuple[str, str, int, int]]: ...

    def member_counts(self) -> Iterator[tuple[str, int]]: ...


class Lag(NamedTuple):
    """How far behind: unread messages, and the age of the oldest of them."""

    messages: int
    seconds: float

    def plus(self, other: "Lag") -> "Lag":
        """Both together: messages add up, the oldest one counts."""
        return Lag(self.messages + other.messages, max(self.seconds, other.seconds))


NO_LAG: Final = Lag(0, 0.0)


class ReadBatch(NamedTuple):
    """The batch that holds a group's oldest unread message, as far as it was worth reading."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    runs: tuple[tuple[int, int], ...]
    """Runs of records made at about the same time: the last offset of each, and the time."""

    def timestamp_at(self, offset: int) -> int:
        """When the first message from this offset on was made."""
        return next((at_ms for last_offset, at_ms in self.runs if last_offset >= offset), self.runs[-1][1])

    def answers(self, offset: int, leader_epoch: int) -> bool:
        return self.base_offset <= offset <= self.last_offset and leader_epoch == self.leader_epoch


class Series:
    """Gathers the numbers of one turn under a bounded number of labels (LAG-1); groups that have series keep them."""

    __slots__ = ("_own", "_room", "_topic_counts", "lags", "members")

    def __init__(self, known: set[str], groups_max: int) -> None:
        self._own = known - {OTHER}
        self._room = groups_max - len(self._own)
        self._topic_counts: dict[str, int] = {}
        self.lags: dict[tuple[str, str], Lag] = {}
        self.members: dict[str, int] = {}

    def add(self, group: str, topic: str, lag: Lag) -> None:
        labels = (group, topic)
        so_far = self.lags.get(labels)
        if so_far is None:
            labels = self._labels(group, topic)
            so_far = self.lags.get(labels)
        if so_far is None:
            self.lags[labels] = lag
        elif lag is not NO_LAG:
            self.lags[labels] = so_far.plus(lag)

    def add_members(self, group: str, count: int) -> None:
        label = group if self._has_own(group) else OTHER
        self.members[label] = self.members.get(label, 0) + count

    def _labels(self, group: str, topic: str) -> tuple[str, str]:
        """What a group and a topic that have no series yet are counted under."""
        if not self._has_own(group):
            return OTHER, OTHER
        count = self._topic_counts.get(group, 0)
        if count >= TOPICS_PER_GROUP_MAX:
            return group, OTHER
        self._topic_counts[group] = count + 1
        return group, topic

    def _has_own(self, group: str) -> bool:
        if group in self._own:
            return True
        if self._room <= 0 or group == OTHER or len(group) > LABEL_CHARACTERS_MAX:
            return False
        self._own.add(group)
        self._room -= 1
        return True


class GroupLag:
    """Owns the lag series of one broker; lives on its event loop from `start` to `aclose`."""

    def __init__(
        self,
        machines: Callable[[], Iterable[CommittedOffsets]],
        find_partition: Callable[[str, int], Partition | None],
        clock: Clock,
        *,
        interval_ms: int,
        groups_max: int,
    ) -> None:
        self._machines = machines
        self._find_partition = find_partition
        self._clock = clock
        self._interval_ms = interval_ms
        self._groups_max = groups_max
        self._batches: dict[tuple[str, str, int], ReadBatch] = {}
        self._task: asyncio.Task[None] | None = None
        self.lags: dict[tuple[str, str], Lag] = {}
        """By group and topic, as of the last turn."""
        self.members: dict[str, int] = {}
        self.read_count = 0
        """How many batches were read, for tests: what is known is not read again."""

    def start(self, metrics: BrokerMetrics) -> None:
        """Offer the series and keep them fresh."""
        metrics.watch_table(
            "martlet_group_lag_messages",
            "Messages a group has not read.",
            ("group", "topic"),
            lambda: [(labels, lag.messages) for labels, lag in self.lags.items()],
        )
        metrics.watch_table(
            "martlet_group_lag_seconds",
            "Age of the oldest message a group has not read.",
            ("group", "topic"),
            lambda: [(labels, lag.seconds) for labels, lag in self.lags.items()],
        )
        metrics.watch_table(
            "martlet_group_members",
            "Members of a group.",
            ("group",),
            lambda: [((group,), count) for group, count in self.members.items()],
        )
        self._task = asyncio.create_task(self._repeat(), name="martlet-group-lag")

    async def aclose(self) -> None:
        """Stop refreshing."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _repeat(self) -> None:
        while True:
            await asyncio.sleep(self._interval_ms / 1000)
            try:
                await self.refresh()
            except Exception:
                # A supervisor: numbers for operators must not end the broker, nor themselves.
                logger.exception("the lag of groups could not be found out")

    async def refresh(self) -> None:
        """Measure how far every group is behind."""
        series = Series({group for group, _ in self.lags} | set(self.members), self._groups_max)
        batches: dict[tuple[str, str, int], ReadBatch] = {}
        turn = 0
        for machine in self._machines():
            for group, count in machine.member_counts():
                series.add_members(group, count)
            for group, topic, index, offset in tuple(machine.committed_offsets()):
                turn += 1
                if turn % OFFSETS_PER_TURN == 0:
                    await asyncio.sleep(0)
                partition = self._find_partition(topic, index)
                if partition is None or partition.closed_with is not None or offset < 0:
                    continue
                unread = partition.high_watermark - max(offset, partition.log.log_start_offset)
                lag = NO_LAG
                if unread > 0:
                    lag = Lag(unread, await self._age_seconds((group, topic, index), partition, unread, batches))
                series.add(group, topic, lag)
            await asyncio.sleep(0)
        self._batches, self.lags, self.members = batches, series.lags, series.members

    async def _age_seconds(
        self,
        key: tuple[str, str, int],
        partition: Partition,
        unread: int,
        batches: dict[tuple[str, str, int], ReadBatch],
    ) -> float:
        """How old the first of `count` unread messages is; 0 when that is not known."""
        first_unread = partition.high_watermark - unread
        batch = self._batches.get(key)
        if batch is None or not batch.answers(first_unread, partition.leader_epoch):
            batch = await self._read(partition, first_unread)
        if batch is None:
            return 0.0
        batches[key] = batch
        made_at_ms = batch.timestamp_at(first_unread)
        return max(0, self._clock.now_ms() - made_at_ms) / 1000 if made_at_ms >= 0 else 0.0

    async def _read(self, partition: Partition, offset: int) -> ReadBatch | None:
        """Read the batch with the first message from `offset` on; None when that cannot be done now."""
        self.read_count += 1
        epoch = partition.leader_epoch
        try:
            place = partition.log.locate(offset, max_bytes=1, end_offset=partition.high_watermark, at_least_one=True)
            if place.size == 0:
                return None
            if place.is_quick() and place.size <= _LONG_READ_BYTES:
                return read_batch(place, offset, epoch)
            return await asyncio.get_running_loop().run_in_executor(None, read_batch, place, offset, epoch)
        except (ApiError, StorageFailure) as failure:
            # Deleted or truncated in this moment, or not readable; a client that fetches it gets the error.
            logger.debug("the oldest unread message of %s cannot be dated: %s", partition.name, failure)
            return None


def read_batch(place: LogSlice, offset: int, leader_epoch: int) -> ReadBatch | None:
    """Date the messages of the batch that lies there; may run in a thread. None when there is nothing to read."""
    if place.file is None:
        return None
    header = read_batch_header(place.file.pread(HEADER_BYTES, place.position))
    if header.uses_log_append_time:
        runs: tuple[tuple[int, int], ...] = ((header.last_offset, header.max_timestamp),)
    elif _is_short(header):
        runs = ((header.last_offset, header.base_timestamp),)
    else:
        runs = _runs_of(place.file.pread(header.size, place.position), header)
    base_offset = min(header.base_offset, offset)  # a gap before the batch, left by compaction, belongs to it
    return ReadBatch(base_offset, header.last_offset, leader_epoch, runs)


def _is_short(header: BatchHeader) -> bool:
    has_own_base = not header.attributes & DELETE_HORIZON_BIT
    return has_own_base and 0 <= header.max_timestamp - header.base_timestamp <= SPREAD_MS_MAX


def _runs_of(batch: bytes, header: BatchHeader) -> tuple[tuple[int, int], ...]:
    """Records whose times are close together are one run, so that little is kept of a large batch."""
    try:
        data, spans = unpack_batches(batch, max_bytes=_OPENED_BYTES_MAX, check_crc=False)
        index = index_records(data, spans)
    except ApiError:
        return ((header.last_offset, header.max_timestamp),)
    spread_ms = max(SPREAD_MS_MAX, (header.max_timestamp - min(index.timestamps, default=0)) // _RUNS_MAX)
    runs: list[tuple[int, int]] = []
    for offset, at_ms in zip(index.offsets, index.timestamps, strict=True):
        if runs and abs(at_ms - runs[-1][1]) <= spread_ms:
            runs[-1] = (offset, runs[-1][1])
        elif len(runs) <= 2 * _RUNS_MAX:
            runs.append((offset, at_ms))
    return tuple(runs) or ((header.last_offset, header.max_timestamp),)

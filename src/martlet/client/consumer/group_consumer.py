"""Reads topics as a member of a consumer group: heartbeats in the background, rebalances and batches in `poll`.

    async with GroupConsumer(cluster, GroupConsumerOptions(member=MemberOptions(group_id="billing"))) as consumer:
        consumer.subscribe(["orders"])
        async for fetched in consumer:
            ...
            await consumer.commit()

Rules: partitions come and go only inside `poll` (and `aclose`), so between two polls the reader owns what it was given.
What `poll` has returned counts as read: `commit` without offsets commits it. Nothing is committed unasked. A poll, an
iteration and a close belong to one task at a time; `commit` may be called by any.
Proved by: tests/clients/test_group_consumer.py
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Self, TypeVar

from martlet.base.errors import ApiError, MartletError
from martlet.base.ids import TopicPartition
from martlet.base.randomness import IdSource
from martlet.client.backoff import Backoff
from martlet.client.cluster import Cluster
from martlet.client.consumer.heartbeats import Heartbeats, complete, now_ms
from martlet.client.consumer.membership import (
    CommitRefusal,
    MemberOptions,
    Membership,
    MemberState,
    Step,
    StepKind,
    Subscription,
)
from martlet.client.errors import ClientError
from martlet.client.fetched import Fetched
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.group_members import MemberIdentity
from martlet.client.groups import Groups
from martlet.client.offsets import EARLIEST, LATEST, list_offsets
from martlet.client.retrying import Retrying

Result = TypeVar("Result")

_ITERATION_POLL_MS: Final = 60_000


class Start(Enum):
    """Where to read a partition that the group has not committed."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConsumerOptions:
    """The member, how it reads, and where it starts."""

    member: MemberOptions
    fetch: FetcherOptions = field(default_factory=FetcherOptions)
    start: Start = Start.LATEST
    close_timeout_ms: int = 5_000
    """How long leaving may take; a broker that was not reached removes the member when its session ends."""


class PartitionsLost(MartletError):
    """A commit came too late: the group has taken these partitions from the member."""

    def __init__(self, partitions: Collection[TopicPartition]) -> None:
        self.partitions = tuple(sorted(partitions))
        super().__init__(f"not committed, other members may own {', '.join(map(str, self.partitions))} by now")


class RebalanceListener:
    """What a reader may want to do when partitions come and go; each does nothing unless overridden."""

    async def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Reading starts after this returns."""

    async def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Another member gets them after this returns; `commit` still works."""

    async def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Another member may have them already; a commit would be refused."""


class GroupConsumer:
    """Between `start` and `aclose`; the cluster is the caller's to close."""

    def __init__(
        self, cluster: Cluster, options: GroupConsumerOptions, listener: RebalanceListener | None = None
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._listener = listener or RebalanceListener()
        self._groups = Groups(cluster)
        self._fetcher = Fetcher(cluster, options.fetch)
        client = cluster.options
        backoff = Backoff(client.retry_backoff_ms, client.retry_backoff_max_ms, cluster.randomness)
        self._membership = Membership(options.member, IdSource(cluster.randomness).text_id(), backoff)
        self._subscription = Subscription()
        self._committed: dict[TopicPartition, int] = {}
        """What the group has committed, as far as this member knows."""
        self._positions: dict[TopicPartition, int] = {}
        """The next offset to hand out, of every partition that is owned."""
        self._paused: set[TopicPartition] = set()
        self._arrived: deque[Fetched] = deque()
        """Fetched for an iteration, and not handed out yet."""
        self._heartbeats = Heartbeats(cluster, self._groups, options.member.group_id, self._membership)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        self._heartbeats.start()

    async def aclose(self) -> None:
        """Give the partitions back, with `on_revoked`, and leave; bounded by `close_timeout_ms`."""
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._options.close_timeout_ms / 1000):
                    await self._leave()
        finally:
            await self._heartbeats.stop()
            await self._fetcher.aclose()

    async def _leave(self) -> None:
        self._membership.leave(now_ms())
        self._heartbeats.reschedule()
        while self._membership.state not in (MemberState.LEFT, MemberState.FAILED):
            if (step := self._membership.next_step()) is not None:
                await self._execute(step)
            else:
                await self._heartbeats.answered()

    # Reading

    def subscribe(self, topics: Iterable[str] = (), *, pattern: str | None = None) -> None:
        """Read these topics, or all whose whole name matches an RE2 pattern; replaces what was subscribed before."""
        names = tuple(sorted(set(topics)))
        if bool(names) == bool(pattern):
            raise ValueError("subscribe to topics by name or to one pattern, not to both or neither")
        self._subscription = Subscription(names, pattern)
        self._membership.subscribe(self._subscription, now_ms())
        self._heartbeats.reschedule()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions owned since the last poll."""
        return frozenset(self._positions)

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The next offset of each owned partition that `poll` or the iteration will return."""
        return dict(self._positions)

    async def poll(self, timeout_ms: float) -> list[Fetched]:
        """What has arrived, after at most about `timeout_ms`; empty when nothing has.

        A refusal of the group that is final is raised, here and from then on.
        """
        arrived = [*self._arrived] or await self._poll(timeout_ms)
        self._arrived.clear()
        for fetched in arrived:
            self._positions[fetched.partition] = fetched.next_position
        return arrived

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Fetched:
        """The next batches of one partition; waits for as long as it takes."""
        while not self._arrived or self._membership.next_step() is not None:
            self._arrived.extend(await self._poll(0 if self._arrived else _ITERATION_POLL_MS))
        fetched = self._arrived.popleft()
        self._positions[fetched.partition] = fetched.next_position
        self._membership.poll_ended(now_ms())
        return fetched

    async def _poll(self, timeout_ms: float) -> list[Fetched]:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        self._membership.poll_started(now_ms())
        self._heartbeats.reschedule()
        try:
            while True:
                with self._heartbeats.wake_up() as wake:
                    await self._rebalance()
                    timer = loop.call_at(deadline, complete, wake)
                    try:
                        arrived = await self._fetcher.fetch(until=wake)
                        if not arrived and not self._fetcher.positions:
                            await wake
                    finally:
                        timer.cancel()
                if arrived or loop.time() >= deadline:
                    return arrived
        finally:
            self._membership.poll_ended(now_ms())
            self._heartbeats.reschedule()

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Read no more of these until `resume`; they stay owned."""
        for partition in self._owned_of(partitions):
            self._paused.add(partition)
            self._stop_fetching([partition])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Go on where `pause` stopped."""
        for partition in self._owned_of(partitions):
            if partition in self._paused:
                self._paused.discard(partition)
                self._fetcher.assign({partition: self._positions[partition]})

    def seek(self, positions: Mapping[TopicPartition, int]) -> None:
        """Go on from these offsets, in partitions that are owned."""
        for partition in self._owned_of(positions):
            self._stop_fetching([partition])
            self._positions[partition] = positions[partition]
            if partition not in self._paused:
                self._fetcher.assign({partition: positions[partition]})

    def _owned_of(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        wanted = list(partitions)
        if foreign := [str(partition) for partition in wanted if partition not in self._positions]:
            raise ValueError(f"this member does not own {', '.join(foreign)}")
        return wanted

    def _stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        self._fetcher.unassign(partitions)
        self._arrived = deque(fetched for fetched in self._arrived if fetched.partition not in partitions)

    # Committing

    async def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or all that was read; PartitionsLost when the member does not own one of them."""
        wanted = dict(self._positions.items() - self._committed.items()) if offsets is None else dict(offsets)
        if not wanted:
            return

        async def attempt(member: MemberIdentity) -> None:
            if foreign := self._membership.not_owned(wanted):
                raise PartitionsLost(foreign)
            await self._groups.commit(self._options.member.group_id, wanted, member=member)

        await self._as_member(wanted, attempt)
        self._committed.update((one, offset) for one, offset in wanted.items() if one in self._positions)

    async def _as_member(
        self, partitions: Collection[TopicPartition], ask: Callable[[MemberIdentity], Awaitable[Result]]
    ) -> Result:
        """Run a request about offsets, again when the member's epoch has changed."""
        retrying = Retrying(self._cluster.options, self._cluster.randomness)
        while True:
            identity = self._membership.identity
            if identity is None:
                raise PartitionsLost(partitions)
            try:
                return await ask(identity)
            except ApiError as error:
                refusal = self._membership.refused_as(identity, error, now_ms())
                if refusal is CommitRefusal.LOST:
                    raise PartitionsLost(partitions) from error
                if refusal is CommitRefusal.FINAL or not retrying.time_left():
                    raise
                if refusal is CommitRefusal.AFTER_HEARTBEAT:
                    self._heartbeats.reschedule()
                    await self._heartbeats.answered()

    # Rebalances

    async def _rebalance(self) -> None:
        """Do what the group wants done before reading goes on; raises what ended the membership."""
        while True:
            self._heartbeats.check()
            if self._membership.unnamed_topics:
                await self._learn_names()
            step = self._membership.next_step()
            if step is None:
                break
            await self._execute(step)
        if self._membership.failure is not None:
            raise self._membership.failure
        if self._membership.state is MemberState.LEFT:
            raise ClientError("this consumer is closed")

    async def _execute(self, step: Step) -> None:
        """A step whose call was cancelled is repeated by the next poll; one that failed is not."""
        if step.kind is StepKind.ASSIGN:
            # Fenced meanwhile: the next step says so.
            with contextlib.suppress(PartitionsLost):
                await self._start_reading(step)
            return
        self._stop_fetching(step.partitions)
        notify = self._listener.on_revoked if step.kind is StepKind.REVOKE else self._listener.on_lost
        try:
            await notify(step.partitions)
        except Exception:
            self._drop(step)
            raise
        self._drop(step)

    def _drop(self, step: Step) -> None:
        for partition in step.partitions:
            self._positions.pop(partition, None)
            self._committed.pop(partition, None)
            self._paused.discard(partition)
        self._complete_step(step)

    async def _start_reading(self, step: Step) -> None:
        group_id = self._options.member.group_id
        committed = await self._as_member(
            step.partitions, lambda member: self._groups.committed(group_id, step.partitions, member=member)
        )
        offsets = {partition: found.offset for partition, found in committed.items()}
        self._committed.update(offsets)
        new = [partition for partition in step.partitions if partition not in offsets]
        if new:
            read_committed = self._options.fetch.read_committed
            start = dict.fromkeys(new, self._options.start.value)
            found = await list_offsets(self._cluster, start, read_committed=read_committed)
            offsets.update((partition, at.offset) for partition, at in found.items())
        self._positions.update(offsets)
        await self._listener.on_assigned(step.partitions)
        self._fetcher.assign({one: self._positions[one] for one in step.partitions if one not in self._paused})
        self._complete_step(step)

    def _complete_step(self, step: Step) -> None:
        self._membership.completed(step, now_ms())
        self._heartbeats.reschedule()

    async def _learn_names(self) -> None:
        """Topics that cannot be described now are asked for again at the next heartbeat."""
        with contextlib.suppress(ApiError, ClientError):
            if self._subscription.pattern is None:
                await self._cluster.refresh(self._subscription.topics)
            else:
                await self._cluster.refresh_all()
        self._membership.learn_names({topic.id: name for name, topic in self._cluster.metadata.topics.items()})

"""Fetches all that this broker follows from one leader: what to ask for when, and what to do with each answer.

A round asks for every partition that is not held back (by trouble, a flush that is not over, the throttle) and carries
the answer out partition by partition; while something is held back the leader is asked to answer sooner. A partition
newly followed does not wait for the end of an idle poll: the connection is dropped. Where many are followed, those that
are written to (the busy ones) are fetched over a connection of their own, because a round costs both brokers something
for each partition in it. A partition may be in two requests for a moment; the second answer is then out of date.

Rules: FOL-1 trouble with one partition pauses it alone, for a second at most; nothing is given up for ever: "not
leader" may come from a leader that has not heard of its election yet. FOL-2 this is one of the named supervisors that
may catch everything: one partition's fault must not stop the others.
Proved by: tests/unit/broker/following/test_fetcher.py, tests/unit/broker/following/test_assignment.py
"""

import asyncio
import logging
from collections.abc import Collection, Iterator
from functools import partial
from typing import Final

from martlet.base.errors import ApiError, ErrorCode, InvariantViolation
from martlet.base.ids import BrokerId
from martlet.broker.following.apply import is_no_news, take_result
from martlet.broker.following.connection import FetchConnection, FetcherContext
from martlet.broker.following.partition import Followed, FollowingPartition
from martlet.broker.following.request import ReplicaRequest, RequestedPartition, build_request
from martlet.broker.following.throttle import ReplicaThrottle
from martlet.cluster.move_throttle import THROTTLED_REPLICAS, is_throttled
from martlet.wire.fetch import FetchPartitionResult, FetchResponse

logger = logging.getLogger(__name__)

_FLUSH_WAIT_SECONDS: Final = 0.02
"""How long the leader may hold a request while another partition waits for its flush; longer for a slow flush."""
_FLUSH_WAIT_SECONDS_MAX: Final = 0.2
_SHORTEST_WAIT_SECONDS: Final = 0.005
_BUSY_WAIT_MS: Final = 50
"""How long the leader may hold a request on the busy connection, so that another partition can join it soon."""
_BUSY_WITHIN_SECONDS: Final = 1.0
"""A partition that gets data twice within this time is a busy one."""
_QUIET_AFTER_SECONDS: Final = 2.0
_THROTTLED_BYTES_MIN: Final = 65_536
"""What is asked for at once however slow copying may be, because others may be in the same request."""
_TURN_BYTES: Final = 1 << 20
"""After appending so much the event loop gets its turn."""


class ReplicaFetcher:
    """One per leader broker, from `start` to `aclose`."""

    def __init__(self, leader: BrokerId, context: FetcherContext) -> None:
        self.leader = leader
        self._context = context
        self._followed: dict[FollowingPartition, Followed] = {}
        self._in_busy: dict[Followed, None] = {}
        """Those that the busy connection fetches."""
        self._to_busy: dict[Followed, None] = {}
        """Those that it takes over with its next request."""
        wait_ms = context.options.wait_ms
        self._quiet = FetchConnection("quiet", leader, self, context, wait_ms)
        self._busy = FetchConnection("busy", leader, self, context, min(wait_ms, _BUSY_WAIT_MS))
        self._connections = (self._quiet, self._busy)
        self._quiet_request: ReplicaRequest | None = None
        """The last request of the quiet connection, while nothing has changed that goes into it."""

    def start(self) -> None:
        for connection in self._connections:
            connection.start()

    async def aclose(self) -> None:
        """Ask no more; what has been taken stays."""
        for connection in self._connections:
            await connection.aclose()

    def followed(self) -> Iterator[Followed]:
        """What is copied from this leader."""
        return iter(self._followed.values())

    # --- news from the metadata

    def follow(self, partition: FollowingPartition) -> None:
        """Copy this partition from now on, or go on doing so in another epoch."""
        known = self._followed.get(partition)
        if known is not None:
            if known.role is partition.follower:
                return
            self._leave_busy(known)
        self._followed[partition] = Followed(partition)
        self._change()
        self._quiet.end_call_soon()

    def unfollow(self, partition: FollowingPartition) -> None:
        """The partition is no longer copied from here."""
        followed = self._followed.pop(partition, None)
        if followed is not None:
            self._leave_busy(followed)
            self._change()
            if not self._followed:
                for connection in self._connections:
                    connection.hang_up()

    def leader_changed(self) -> None:
        """The leader's registration is another one now."""
        for connection in self._connections:
            connection.leader_changed()

    def throttle_changed(self) -> None:
        """Others may be held back from now on, or for another time."""
        self._change()

    def _change(self) -> None:
        self._quiet_request = None
        for connection in self._connections:
            connection.wake()

    # --- what to ask for

    def compose(self, connection: FetchConnection) -> tuple[ReplicaRequest, float | None]:
        """What to ask for now, and in how many seconds there may be more to ask for."""
        if connection is self._busy:
            return self._compose(self._take_over())
        if self._quiet_request is not None and not any(one.partition.offline for one in self._followed.values()):
            return self._quiet_request, None
        now = asyncio.get_running_loop().time()
        for followed in [followed for followed in self._in_busy if _is_quiet(followed, now)]:
            self._leave_busy(followed)
        request, wait_seconds = self._compose([one for one in self._followed.values() if not one.is_busy])
        if wait_seconds is None and not (self._context.throttle.limits or self._context.move_throttle.limits):
            self._quiet_request = request
        return request, wait_seconds

    def _compose(self, partitions: Collection[Followed]) -> tuple[ReplicaRequest, float | None]:
        now = asyncio.get_running_loop().time()
        ready: list[Followed] = []
        wait_seconds: float | None = None
        # Without space no more than shows that there is something to copy, and that this replica still follows.
        bytes_max = self._context.options.bytes_max if self._context.ports.has_space() else 1
        for followed in partitions:
            if not followed.is_followed_from(self.leader):
                continue
            held_back = self._held_back_seconds(followed, now)
            if held_back <= 0:
                ready.append(followed)
                # An answer is counted only when it has come: no more than a second's worth at once.
                for throttle in self._throttles(followed):
                    bytes_max = min(bytes_max, max(throttle.rate, _THROTTLED_BYTES_MIN))
            else:
                wait_seconds = held_back if wait_seconds is None else min(wait_seconds, held_back)
        request = build_request(ready, bytes_max)
        # Never shorter than the resolution of time, or the rest of a rounding would make this spin.
        return request, None if wait_seconds is None else max(wait_seconds, _SHORTEST_WAIT_SECONDS)

    # --- which connection fetches what

    def _take_over(self) -> Collection[Followed]:
        """What the busy connection fetches now: also those that have become busy, still those to be given back."""
        for followed in self._to_busy:
            followed.is_busy = True
            self._in_busy[followed] = None
        now = asyncio.get_running_loop().time()
        if self._to_busy or any(_is_quiet(followed, now) for followed in self._in_busy):
            self._to_busy.clear()
            self._quiet_request = None
        return self._in_busy

    def _leave_busy(self, followed: Followed) -> None:
        followed.is_busy = False
        self._in_busy.pop(followed, None)
        self._to_busy.pop(followed, None)

    def _note_copied(self, followed: Followed, now: float) -> None:
        """Data has come: it goes behind the others, which then get their share, or to the busy connection."""
        self._followed[followed.partition] = self._followed.pop(followed.partition)
        was_copied_at, followed.copied_at = followed.copied_at, now
        if followed.is_busy:
            self._in_busy[followed] = self._in_busy.pop(followed, None)
        elif (
            len(self._followed) >= self._context.options.busy_connection_from
            and now - was_copied_at < _BUSY_WITHIN_SECONDS
        ):
            self._to_busy[followed] = None
            self._busy.wake()

    # --- what holds a partition back

    def _held_back_seconds(self, followed: Followed, now: float) -> float:
        """For how long, about, the partition has to be left out; 0: not at all."""
        if followed.pauses_until > now:
            return followed.pauses_until - now
        if followed.log.needs_flush and self._awaits_flush(followed, now):
            return min(max(now - followed.flush_awaited_since, _FLUSH_WAIT_SECONDS), _FLUSH_WAIT_SECONDS_MAX)
        return max((throttle.wait_seconds(now) for throttle in self._throttles(followed)), default=0.0)

    def _throttles(self, followed: Followed) -> list[ReplicaThrottle]:
        """Which throttles are for this partition: none for a replica that is in sync."""
        context = self._context
        if not (context.throttle.limits or context.move_throttle.limits):
            return []
        name, me = followed.partition.name, context.identity.me
        record = context.image.partition(*name)
        if record is not None and me in record.isr:
            return []
        throttles = [context.throttle] if context.throttle.limits else []
        topic = context.image.topic(name.topic) if context.move_throttle.limits else None
        if topic is not None and is_throttled(topic.configs.get(THROTTLED_REPLICAS, ""), name.partition, me.broker):
            throttles.append(context.move_throttle)
        return throttles

    # --- taking answers

    async def take(self, request: ReplicaRequest, response: FetchResponse) -> Collection[Followed]:
        """Carry an answer out, partition by partition; one that is not in it has no news.

        Returns those that were appended to.
        """
        now_ms = self._context.ports.clock.now_ms()
        answered_at = asyncio.get_running_loop().time()
        taken_bytes = 0
        appended: list[Followed] = []
        for topic in response.topics:
            topic_id = topic.topic_id or b""
            for result in topic.partitions:
                requested = request.partitions.get((topic_id, result.partition))
                if requested is None or is_no_news(requested, result):
                    continue
                size = self._take_result(requested, result, now_ms)
                if size:
                    appended.append(requested.followed)
                taken_bytes += size
                if taken_bytes >= _TURN_BYTES:
                    taken_bytes = 0
                    await asyncio.sleep(0)
        for followed in request.recovering:
            # A partition without news has none of an error either.
            if followed.pauses_until <= answered_at:
                followed.went_well()
                self._quiet_request = None
        return appended

    def _take_result(self, requested: RequestedPartition, result: FetchPartitionResult, now_ms: int) -> int:
        followed = requested.followed
        partition = followed.partition
        if self._followed.get(partition) is not followed or not followed.is_followed_from(self.leader):
            return 0
        followed.requested = None
        self._quiet_request = None
        try:
            size = take_result(requested, result, now_ms)
        except ApiError as error:
            self._partition_failed(followed, error)
            return 0
        except InvariantViolation as error:
            self._partition_failed(followed, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            context = {"message": f"copying {partition.name} broke an invariant", "exception": error}
            asyncio.get_running_loop().call_exception_handler(context)
            return 0
        except Exception as error:
            logger.exception("copying %s failed", partition.name)
            self._partition_failed(followed, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, repr(error)))
            return 0
        followed.went_well()
        if size:
            self._copied(followed, size)
        return size

    def _copied(self, followed: Followed, size: int) -> None:
        now = asyncio.get_running_loop().time()
        self._note_copied(followed, now)
        for throttle in self._throttles(followed):
            throttle.took(size, now)
        if followed.log.needs_flush:
            self._awaits_flush(followed, now)

    def _partition_failed(self, followed: Followed, error: ApiError) -> None:
        self._context.metrics.replica_fetch_errors += 1
        followed.failed(error, asyncio.get_running_loop().time(), self._context.ports.randomness)
        if followed.is_worth_a_warning:
            name = followed.partition.name
            logger.warning("cannot copy %s from broker %d, trying again: %s", name, self.leader, error)

    # --- flushes

    def _awaits_flush(self, followed: Followed, now: float) -> bool:
        """See to it that the end of its flush is heard of; False when it is over already."""
        if not followed.awaits_flush:
            followed.awaits_flush = followed.log.when_flushed(partial(self._flushed, followed))
            followed.flush_awaited_since = now
        return followed.awaits_flush

    def _flushed(self, followed: Followed) -> None:
        followed.awaits_flush = False
        self._quiet_request = None
        for connection in self._connections:
            connection.flushed(followed)


def _is_quiet(followed: Followed, now: float) -> bool:
    """Whether a busy partition has had no data for so long that it is not one any more."""
    return now - followed.copied_at >= _QUIET_AFTER_SECONDS

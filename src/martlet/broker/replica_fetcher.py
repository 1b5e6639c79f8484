"""Copies everything this broker follows from one leader: one connection, one request under way, round after round.

How it works: a round asks for all partitions that can be asked for, waits for the answer and carries it out partition
by partition. What is held back (trouble, a flush that is not over, the throttle) is left out, and the leader is
asked to answer sooner, so that nothing waits for a long poll it is not part of. A partition that begins to be followed
while the leader holds an idle poll is not kept waiting either: the connection is dropped and made anew.

Rules: (F1) trouble with one partition pauses that partition; trouble with the connection pauses the round. Both grow
to a second at most and end at once with news from the metadata. Nothing is given up for ever: an answer such as
"not leader" may come from a leader that has not heard of its election yet. (F2) A connection is to one process: when
the leader registers anew, it is dropped. (F3) This is one of the named supervisors that may catch everything: a fault
that one partition brings up must not stop the others; a broken invariant goes to the loop's exception handler.

Proved by: tests/unit/broker/test_replica_fetcher.py, tests/unit/broker/test_replica_fetching.py
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, InvariantViolation, ProtocolViolation, error_code
from martlet.base.ids import BrokerId, Incarnation
from martlet.base.randomness import Randomness
from martlet.broker.replica_answer import is_no_news, take_result
from martlet.broker.replica_ask import OLDEST_VERSION, Ask, Asked, ReplicaIdentity, compose_ask
from martlet.broker.replica_connect import Connect, connect_to_broker
from martlet.broker.replica_followed import Followed, FollowingPartition, backoff_seconds
from martlet.broker.replica_throttle import ReplicaThrottle
from martlet.client.addresses import Address
from martlet.client.apis import FETCH
from martlet.client.connection import Connection
from martlet.client.errors import ClientError, ConnectionFailed
from martlet.cluster.image import MetadataImage
from martlet.observe.metrics import BrokerMetrics
from martlet.wire.fetch import FetchPartitionResult, FetchResponse, parse_fetch_response

logger = logging.getLogger(__name__)

_ANSWER_TIMEOUT_MS: Final = 10_000
"""How much longer than it was asked to wait a leader may take; then the connection is given up."""
_FLUSH_GRACE_SECONDS: Final = 0.02
"""What has just been appended is waited for so long, because its flush usually is over by then."""
_HELD_BACK_WAIT_MS: Final = 20
"""How long the leader may hold a request while another partition waits for its flush."""
_SHORTEST_WAIT_SECONDS: Final = 0.005
_JOIN_PATIENCE_SECONDS: Final = 0.02
"""A partition that begins to be followed waits so long for the request under way before the connection is dropped."""
_TURN_BYTES: Final = 1 << 20
"""After appending so much the event loop gets its turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchOptions:
    """How much to ask for at once, how long leaders may wait for it, and how fast replicas may catch up."""

    wait_ms: int = 500
    bytes_max: int = 10_485_760
    throttle_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPorts:
    """What fetchers take from the outside."""

    clock: Clock
    randomness: Randomness
    connect: Connect = connect_to_broker


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    image: MetadataImage
    identity: ReplicaIdentity
    options: ReplicaFetchOptions
    ports: ReplicaPorts
    metrics: BrokerMetrics
    throttle: ReplicaThrottle = field(default_factory=lambda: ReplicaThrottle(0))


@dataclass(slots=True)
class _Call:
    """A request under way."""

    ask: Ask
    is_to_end: bool = False
    """Whether its end is arranged already."""


class ReplicaFetcher:
    """One per leader broker; its task runs from `start` to `aclose` and sleeps while nothing is followed from there."""

    def __init__(self, leader: BrokerId, context: FetcherContext) -> None:
        self.leader = leader
        self._context = context
        self._followed: dict[FollowingPartition, Followed] = {}
        self._ask: Ask | None = None
        """The last ask, while it still says what there is to ask for."""
        self._call: _Call | None = None
        self._connection: Connection | None = None
        self._incarnation: Incarnation | None = None
        self._hung_up = False
        self._failures = 0
        self._news = asyncio.Event()
        self._fresh_flushes: dict[Followed, None] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"martlet-replica-fetcher-{self.leader}")

    async def aclose(self) -> None:
        """Ask no more; what has been taken stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    def followed(self) -> Iterator[Followed]:
        """What is copied from this leader."""
        return iter(self._followed.values())

    # --- news from the metadata

    def follow(self, partition: FollowingPartition) -> None:
        """Copy this partition from now on, or go on doing so in another epoch."""
        known = self._followed.get(partition)
        if known is not None and known.role is partition.follower:
            return
        self._followed[partition] = Followed(partition)
        self._change()
        call = self._call
        if call is not None and not call.is_to_end:
            call.is_to_end = True
            asyncio.get_running_loop().call_later(_JOIN_PATIENCE_SECONDS, self._end_call, call)

    def unfollow(self, partition: FollowingPartition) -> None:
        """The partition is no longer copied from here."""
        if self._followed.pop(partition, None) is not None:
            self._change()
            if not self._followed:
                self._hang_up()

    def leader_changed(self) -> None:
        """The leader's registration is another one now: perhaps another process, perhaps elsewhere (F2)."""
        self._failures = 0
        self._hang_up()
        self._news.set()

    def _end_call(self, call: _Call) -> None:
        if self._call is call:
            self._hang_up()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._hung_up = self._call is not None
            self._connection.close()
            self._connection = None

    def _change(self) -> None:
        self._ask = None
        self._news.set()

    # --- the rounds

    async def _run(self) -> None:
        try:
            while True:
                await self._round()
        finally:
            self._hang_up()

    async def _round(self) -> None:
        self._news.clear()
        ask, wait_seconds = self._compose()
        if not ask.asked:
            await self._wait_for_news(wait_seconds)
            return
        wait_ms = self._context.options.wait_ms
        if wait_seconds is not None:
            wait_ms = min(wait_ms, round(wait_seconds * 1000))
        try:
            response = await self._exchange(ask, wait_ms)
        except (ClientError, ApiError) as error:
            await self._failed(error)
            return
        self._failures = 0
        self._hung_up = False
        await self._take(ask, response)
        if self._fresh_flushes:
            await self._wait_for_flushes()

    def _compose(self) -> tuple[Ask, float | None]:
        """What to ask for now, and in how many seconds there may be more to ask for."""
        if self._ask is not None and not any(followed.partition.offline for followed in self._followed.values()):
            return self._ask, None
        now = asyncio.get_running_loop().time()
        ready: list[Followed] = []
        wait_seconds: float | None = None
        for followed in self._followed.values():
            if not followed.is_followed_from(self.leader):
                continue
            held_back = self._held_back_seconds(followed, now)
            if held_back <= 0:
                ready.append(followed)
            else:
                wait_seconds = held_back if wait_seconds is None else min(wait_seconds, held_back)
        ask = compose_ask(ready, self._context.options.bytes_max)
        if wait_seconds is None and not self._context.throttle.limits:
            self._ask = ask
        # Never shorter than time is told apart, or the rest of a rounding would make this spin.
        return ask, None if wait_seconds is None else max(wait_seconds, _SHORTEST_WAIT_SECONDS)

    def _held_back_seconds(self, followed: Followed, now: float) -> float:
        """For how long, about, the partition has to be left out; 0: not at all."""
        if followed.pauses_until > now:
            return followed.pauses_until - now
        if followed.needs_flush:
            if not followed.awaits_flush:
                followed.awaits_flush = followed.partition.when_flushed(partial(self._flushed, followed))
            if followed.awaits_flush:
                return _HELD_BACK_WAIT_MS / 1000
        if self._is_throttled(followed):
            return self._context.throttle.wait_seconds(now)
        return 0.0

    def _is_throttled(self, followed: Followed) -> bool:
        """Whether the throttle is for this partition: it is for copies that are not in sync."""
        context = self._context
        if not context.throttle.limits:
            return False
        record = context.image.partition(*followed.partition.name)
        return record is None or context.identity.me not in record.isr

    async def _wait_for_news(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    # --- talking

    async def _exchange(self, ask: Ask, wait_ms: int) -> FetchResponse:
        connection = await self._connected()
        version = connection.version_of(FETCH)
        if version < OLDEST_VERSION:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"broker {self.leader} serves no replica fetches")
        body = ask.body(version, self._context.identity, wait_ms)
        self._call = _Call(ask)
        try:
            answer = await connection.exchange(FETCH.key, version, body, timeout_ms=wait_ms + _ANSWER_TIMEOUT_MS)
        finally:
            self._call = None
        try:
            response = parse_fetch_response(answer, version)
        except ProtocolViolation as error:
            raise connection.broken_by(error) from error
        if response.error_code:
            code = error_code(response.error_code)
            raise ApiError(code, f"broker {self.leader} refused a replica fetch: {ERROR_TABLE[code].text}")
        return response

    async def _connected(self) -> Connection:
        record = self._context.image.broker(self.leader)
        if record is None or not record.endpoints:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {self.leader} is not registered")
        connection = self._connection
        if connection is not None and connection.is_open and self._incarnation == record.incarnation:
            return connection
        if connection is not None:
            connection.close()
        self._connection = None
        endpoint = record.endpoints[0]
        connection = await self._context.ports.connect(Address(endpoint.host, endpoint.port))
        if self._context.image.broker(self.leader) != record:
            connection.close()
            raise ConnectionFailed(f"broker {self.leader} registered anew meanwhile")
        self._connection, self._incarnation = connection, record.incarnation
        logger.debug("copying from broker %d at %s", self.leader, connection.address)
        return connection

    async def _failed(self, error: ClientError | ApiError) -> None:
        """Wait before the next attempt, unless it was us who ended the last one."""
        if self._hung_up:
            self._hung_up = False
            return
        self._failures += 1
        self._context.metrics.replica_fetch_errors += 1
        if self._failures == 3 or self._failures % 60 == 0:
            logger.warning("cannot copy from broker %d (%d partitions): %s", self.leader, len(self._followed), error)
        await self._wait_for_news(backoff_seconds(self._failures, self._context.ports.randomness))

    # --- taking answers

    async def _take(self, ask: Ask, response: FetchResponse) -> None:
        now_ms = self._context.ports.clock.now_ms()
        answered_at = asyncio.get_running_loop().time()
        taken_bytes = 0
        for topic in response.topics:
            topic_id = topic.topic_id or b""
            for result in topic.partitions:
                asked = ask.asked.get((topic_id, result.partition))
                if asked is None or is_no_news(asked, result):
                    continue
                taken_bytes += self._take_result(asked, result, now_ms)
                if taken_bytes >= _TURN_BYTES:
                    taken_bytes = 0
                    await asyncio.sleep(0)
        for followed in ask.recovering:
            # A partition without news has none of an error either.
            if followed.pauses_until <= answered_at:
                followed.went_well()
                self._ask = None

    def _take_result(self, asked: Asked, result: FetchPartitionResult, now_ms: int) -> int:
        followed = asked.followed
        partition = followed.partition
        if self._followed.get(partition) is not followed or not followed.is_followed_from(self.leader):
            return 0
        self._ask = followed.question = None
        try:
            size = take_result(asked, result, now_ms)
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
        # Behind the others, so that each gets its share of the answers.
        self._followed[followed.partition] = self._followed.pop(followed.partition)
        if self._is_throttled(followed):
            self._context.throttle.took(size, asyncio.get_running_loop().time())
        if followed.needs_flush and not followed.awaits_flush:
            followed.awaits_flush = followed.partition.when_flushed(partial(self._flushed, followed))
            if followed.awaits_flush:
                self._fresh_flushes[followed] = None

    def _partition_failed(self, followed: Followed, error: ApiError) -> None:
        self._context.metrics.replica_fetch_errors += 1
        followed.failed(error, asyncio.get_running_loop().time(), self._context.ports.randomness)
        if followed.is_worth_a_warning:
            name = followed.partition.name
            logger.warning("cannot copy %s from broker %d, trying again: %s", name, self.leader, error)

    # --- flushes

    def _flushed(self, followed: Followed) -> None:
        followed.awaits_flush = False
        self._fresh_flushes.pop(followed, None)
        self._ask = None
        if not self._fresh_flushes:
            self._news.set()

    async def _wait_for_flushes(self) -> None:
        """Give the flushes of what has just been appended a little time; most are over by then."""
        deadline = asyncio.get_running_loop().time() + _FLUSH_GRACE_SECONDS
        while self._fresh_flushes and (left := deadline - asyncio.get_running_loop().time()) > 0:
            self._news.clear()
            await self._wait_for_news(left)
        self._fresh_flushes.clear()

"""One connection to a leader and the rounds on it: a fetch request, its answer, the next request.

How it works: what to fetch and what to do with answers is the fetcher's business; this keeps one request under way.
`end_call_soon` ends a request that is only waiting, by hanging up, when there is something to fetch that cannot wait
for its end.

Rules: trouble with the connection pauses the rounds, for a second at most, and less with news from the metadata. A
connection is to one process: when the leader registers again, it is dropped. This is one of the named supervisors that
may catch everything: an unexpected error goes to the loop's exception handler, and the rounds go on.

Proved by: tests/unit/broker/following/test_fetcher.py, tests/unit/broker/following/test_assignment.py
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from martlet.base.clock import Clock
from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, ProtocolViolation, error_code
from martlet.base.ids import BrokerId, Incarnation
from martlet.base.randomness import Randomness
from martlet.broker.following.partition import Followed, backoff_seconds
from martlet.broker.following.request import OLDEST_VERSION, ReplicaIdentity, ReplicaRequest
from martlet.broker.following.throttle import ReplicaThrottle
from martlet.broker.ground.peer_connection import Connect, connect_to_broker
from martlet.client.apis import FETCH
from martlet.client.connection import Connection
from martlet.client.errors import ClientError, ConnectionFailed
from martlet.cluster.image import MetadataImage
from martlet.observe.metrics import BrokerMetrics
from martlet.wire.fetch import FetchResponse, parse_fetch_response

logger = logging.getLogger(__name__)

_ANSWER_TIMEOUT_MS: Final = 10_000
"""How much longer than it was asked to wait a leader may take; then the connection is given up."""
_FLUSH_GRACE_SECONDS: Final = 0.02
"""What has just been appended is waited for so long, because its flush usually is over by then."""
_JOIN_PATIENCE_SECONDS: Final = 0.02
"""How long something new to ask for waits for the request under way before the connection is dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaFetchOptions:
    """How much to ask for at once, how long leaders may wait for it, and how fast replicas may catch up."""

    wait_ms: int = 500
    bytes_max: int = 10_485_760
    throttle_bytes: int = 0
    busy_connection_from: int = 16
    """From this number of partitions of one leader on, those that are written to get a connection of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaPorts:
    """What fetchers take from the outside."""

    clock: Clock
    randomness: Randomness
    connect: Connect = connect_to_broker
    has_space: Callable[[], bool] = lambda: True
    """Whether what is copied can be written."""


@dataclass(frozen=True, slots=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    image: MetadataImage
    identity: ReplicaIdentity
    options: ReplicaFetchOptions
    ports: ReplicaPorts
    metrics: BrokerMetrics
    throttle: ReplicaThrottle = field(default_factory=lambda: ReplicaThrottle(0))
    """For everything that is not in sync."""
    move_throttle: ReplicaThrottle = field(default_factory=lambda: ReplicaThrottle(0))
    """For those replicas, not in sync, that their topic's settings name."""


class RequestSource(Protocol):
    """The fetcher, as its connections use it."""

    def compose(self, connection: "FetchConnection") -> tuple[ReplicaRequest, float | None]:
        """What to ask for now, and in how many seconds there may be more to ask for."""
        ...

    async def take(self, request: ReplicaRequest, response: FetchResponse) -> Collection[Followed]:
        """Carry the answer out; returns the partitions that were appended to."""
        ...


@dataclass(slots=True)
class _Call:
    """A request under way."""

    is_to_end: bool = False
    """Whether its end is arranged already."""


class FetchConnection:
    """Its task runs from `start` to `aclose` and sleeps while there is nothing to ask for."""

    def __init__(
        self, name: str, leader: BrokerId, owner: RequestSource, context: FetcherContext, wait_ms: int
    ) -> None:
        self.name = name
        self._fresh_flushes: dict[Followed, None] = {}
        """What this round has appended and is not on the device yet, though it should be before it is asked for."""
        self._leader = leader
        self._owner = owner
        self._context = context
        self._wait_ms = wait_ms
        self._call: _Call | None = None
        self._connection: Connection | None = None
        self._incarnation: Incarnation | None = None
        self._hung_up = False
        self._failures = 0
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        name = f"martlet-replica-fetcher-{self._leader}-{self.name}"
        self._task = asyncio.create_task(self._run(), name=name)

    async def aclose(self) -> None:
        """Ask no more; what has been taken stays."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    # --- news

    def wake(self) -> None:
        """There may be something else to ask for."""
        self._news.set()

    def leader_changed(self) -> None:
        """The leader's registration is another one now: perhaps another process, perhaps elsewhere."""
        self._failures = 0
        self.hang_up()
        self._news.set()

    def end_call_soon(self) -> None:
        """Something must be asked for that the request under way does not hold."""
        call = self._call
        if call is not None and not call.is_to_end:
            call.is_to_end = True
            asyncio.get_running_loop().call_later(_JOIN_PATIENCE_SECONDS, self._end_call, call)

    def _end_call(self, call: _Call) -> None:
        if self._call is call:
            self.hang_up()

    def hang_up(self) -> None:
        """Drop the connection, and with it the request under way."""
        if self._connection is not None:
            self._hung_up = self._call is not None
            self._connection.close()
            self._connection = None

    def flushed(self, followed: Followed) -> None:
        """A flush that may have been waited for is over."""
        self._fresh_flushes.pop(followed, None)
        if not self._fresh_flushes:
            self._news.set()

    # --- the rounds

    async def _run(self) -> None:
        try:
            while True:
                try:
                    await self._round()
                except Exception as error:  # noqa: BLE001 - supervisor: it is reported, and the rounds go on
                    await self._broke(error)
        finally:
            self.hang_up()

    async def _round(self) -> None:
        self._news.clear()
        request, wait_seconds = self._owner.compose(self)
        if not request.partitions:
            await self._wait_for_news(wait_seconds)
            return
        wait_ms = self._wait_ms if wait_seconds is None else min(self._wait_ms, round(wait_seconds * 1000))
        try:
            response = await self._exchange(request, wait_ms)
        except (ClientError, ApiError) as error:
            await self._failed(error)
            return
        self._failures = 0
        self._hung_up = False
        fresh = await self._owner.take(request, response)
        self._fresh_flushes = dict.fromkeys(followed for followed in fresh if followed.awaits_flush)
        if self._fresh_flushes:
            await self._wait_for_flushes()

    async def _wait_for_news(self, seconds: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def _wait_for_flushes(self) -> None:
        """Give the flushes of what has just been appended a little time; most are over by then."""
        deadline = asyncio.get_running_loop().time() + _FLUSH_GRACE_SECONDS
        while self._fresh_flushes and (left := deadline - asyncio.get_running_loop().time()) > 0:
            self._news.clear()
            await self._wait_for_news(left)
        self._fresh_flushes.clear()

    # --- talking

    async def _exchange(self, request: ReplicaRequest, wait_ms: int) -> FetchResponse:
        connection = await self._connected()
        version = connection.version_of(FETCH)
        if version < OLDEST_VERSION:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"broker {self._leader} serves no replica fetches")
        body = request.body(version, self._context.identity, wait_ms)
        self._call = _Call()
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
            raise ApiError(code, f"broker {self._leader} refused a replica fetch: {ERROR_TABLE[code].text}")
        return response

    async def _connected(self) -> Connection:
        record = self._context.image.broker(self._leader)
        endpoint = record.broker_endpoint if record is not None else None
        if record is None or endpoint is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"broker {self._leader} is not registered")
        connection = self._connection
        if connection is not None and connection.is_open and self._incarnation == record.incarnation:
            return connection
        if connection is not None:
            connection.close()
        self._connection = None
        connection = await self._context.ports.connect(endpoint)
        if self._context.image.broker(self._leader) != record:
            connection.close()
            raise ConnectionFailed(f"broker {self._leader} registered again meanwhile")
        self._connection, self._incarnation = connection, record.incarnation
        logger.debug("copying from broker %d at %s", self._leader, connection.address)
        return connection

    async def _broke(self, error: Exception) -> None:
        """A round ended as none should: make it known and go on, or nothing would be copied from this leader again."""
        message = f"copying from broker {self._leader} failed unexpectedly"
        asyncio.get_running_loop().call_exception_handler({"message": message, "exception": error})
        self.hang_up()
        self._hung_up = False
        self._failures += 1
        self._context.metrics.replica_fetch_errors += 1
        await self._wait_for_news(backoff_seconds(self._failures, self._context.ports.randomness))

    async def _failed(self, error: ClientError | ApiError) -> None:
        """Wait before the next attempt, unless it was us who ended the last one."""
        if self._hung_up:
            self._hung_up = False
            return
        self._failures += 1
        self._context.metrics.replica_fetch_errors += 1
        if self._failures == 3 or self._failures % 60 == 0:
            logger.warning("cannot copy from broker %d: %s", self._leader, error)
        await self._wait_for_news(backoff_seconds(self._failures, self._context.ports.randomness))

"""The cluster as one object: where to connect, who leads what, and one connection per broker and purpose.

Rules: only `Cluster` opens connections. It starts no tasks: metadata is refreshed when a caller needs it and it is
old, marked stale or lacking. What a request means, and whether it may be sent twice, is for its caller to know.

Each *purpose* has a connection of its own to a broker. Answers come in order, so a long poll on that for fetches
must not stand in front of ordinary requests.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import Enum
from typing import NamedTuple, Self, TypeVar

from martlet.base.addresses import Address
from martlet.base.errors import ERROR_TABLE, ApiError, ErrorCode, error_code
from martlet.base.ids import TopicPartition
from martlet.base.randomness import Randomness, SystemRandomness
from martlet.client.apis import METADATA
from martlet.client.connection import Connection
from martlet.client.errors import ClientError, ConnectionFailed
from martlet.client.metadata import Metadata, TopicInfo
from martlet.client.options import ClientOptions
from martlet.client.retrying import Retrying, asks_for_new_metadata
from martlet.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Result = TypeVar("Result")


class Purpose(Enum):
    """What a connection is for."""

    REQUESTS = "requests"
    PRODUCE = "produce"
    FETCH = "fetch"


class Leader(NamedTuple):
    """Who leads a partition, by what epoch."""

    broker_id: int
    leader_epoch: int


class Cluster:
    """Shared by producer, fetcher and admin of one event loop; its maker closes it."""

    def __init__(
        self,
        bootstrap: Sequence[Address],
        options: ClientOptions | None = None,
        randomness: Randomness | None = None,
    ) -> None:
        self.options = options or ClientOptions()
        self.randomness = randomness or SystemRandomness()
        self.metadata = Metadata()
        self._bootstrap = tuple(bootstrap)
        self._connections: dict[tuple[Address, Purpose], Connection] = {}
        self._opening: dict[tuple[Address, Purpose], asyncio.Lock] = {}
        self._failed_at: dict[Address, float] = {}
        self._refreshed_at: dict[str, float] = {}
        self._refresh_lock = asyncio.Lock()
        self._closed = False

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.aclose()

    async def start(self) -> None:
        """Reach one broker and learn the others; raises ConnectionFailed at once when none answers."""
        await self.refresh(())

    async def aclose(self) -> None:
        self._closed = True
        connections = list(self._connections.values())
        self._connections.clear()
        for connection in connections:
            await connection.aclose()

    async def connection(self, broker_id: int, purpose: Purpose = Purpose.REQUESTS) -> Connection:
        """An open connection to a broker of the cluster, made if there is none."""
        node = self.metadata.brokers.get(broker_id)
        if node is None:
            raise ConnectionFailed(f"broker {broker_id} is not known to the cluster at the moment")
        try:
            return await self._connect(node.address, purpose)
        except ConnectionFailed as error:
            raise ConnectionFailed(
                f"broker {broker_id} announces itself at {node.address}, but there: "
                f"{str(error).removeprefix(f'{node.address}: ')}"
            ) from error

    async def any_connection(self) -> Connection:
        """A connection to any broker that answers: open ones first, then known brokers, then the bootstrap list.

        One that has not answered before comes last: a broker that hangs takes connections as well as any other.
        """
        for (_, purpose), connection in self._connections.items():
            if purpose is Purpose.REQUESTS and connection.is_open:
                return connection
        known = [node.address for node in self.metadata.brokers.values()]
        candidates = sorted(dict.fromkeys([*known, *self._bootstrap]), key=lambda one: self._failed_at.get(one, 0.0))
        failures: list[Exception] = []
        for address in candidates:
            try:
                return await self._connect(address, Purpose.REQUESTS)
            except ClientError as error:
                self._note_failure(address)
                failures.append(error)
        raise no_broker_reachable(candidates, failures)

    async def controller(self) -> Connection:
        """The broker that takes changes of topics and configs; any broker if none is named."""
        if self.metadata.controller_id in self.metadata.brokers:
            return await self.connection(self.metadata.controller_id)
        return await self.any_connection()

    async def _connect(self, address: Address, purpose: Purpose) -> Connection:
        key = (address, purpose)
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        async with self._opening.setdefault(key, asyncio.Lock()):
            connection = self._connections.get(key)
            if connection is not None and connection.is_open:
                return connection
            self._check_open()
            connection = Connection(address, self.options)
            await connection.start()
            try:
                self._check_open()
            except ConnectionFailed:
                connection.close()
                raise
            self._connections[key] = connection
            return connection

    def _check_open(self) -> None:
        if self._closed:
            raise ConnectionFailed("this client is closed")

    async def refresh(self, topics: Iterable[str], *, create: bool = False) -> None:
        """Ask for the brokers and these topics now; a topic's own error is raised, naming it."""
        names = list(dict.fromkeys(topics))
        asked_at = asyncio.get_running_loop().time()
        async with self._refresh_lock:
            # After waiting for the lock, the caller before may have asked for the same.
            if names and all(self._refreshed_at.get(name, -1.0) >= asked_at for name in names):
                return
            failures = await self._ask_metadata(names, create=create)
        for failure in failures.values():
            raise failure

    async def refresh_all(self) -> dict[str, TopicInfo]:
        """Ask for every topic of the cluster; topics that have an error are left out."""
        async with self._refresh_lock:
            await self._ask_metadata(None, create=False)
        return dict(sorted(self.metadata.topics.items()))

    async def _ask_metadata(self, names: list[str] | None, *, create: bool) -> dict[str, ApiError]:
        wanted = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        try:
            response = await self._call_metadata(request)
        except ClientError:
            # A connection that lay idle may have been closed by the other side, or that broker hangs: ask another.
            response = await self._call_metadata(request)
        if response.error_code:
            code = error_code(response.error_code)
            raise ApiError(code, f"the broker could not describe the cluster: {ERROR_TABLE[code].text}")
        if names is None:
            self.metadata.forget_topics(set(self.metadata.topics) - {topic.name or "" for topic in response.topics})
        failures = self.metadata.update(response)
        now = asyncio.get_running_loop().time()
        for name in self.metadata.topics if names is None else names:
            # A caller that waited meanwhile for a topic with an error must get that error, so it asks for itself.
            if name not in failures:
                self._refreshed_at[name] = now
        self._drop_unused_connections()
        return failures

    async def _call_metadata(self, request: MetadataRequest) -> MetadataResponse:
        connection = await self.any_connection()
        try:
            return await connection.call(METADATA, request, timeout_ms=self.options.metadata_timeout_ms)
        except ClientError:
            self._note_failure(connection.address)
            raise

    def _note_failure(self, address: Address) -> None:
        self._failed_at[address] = asyncio.get_running_loop().time()

    def _drop_unused_connections(self) -> None:
        """Close connections to addresses that no broker announces any more, but not the one in use."""
        announced = {node.address for node in self.metadata.brokers.values()} | set(self._bootstrap)
        for key in [key for key in self._connections if key[0] not in announced]:
            self._connections.pop(key).close()

    def mark_stale(self, topic: str) -> None:
        """The next use of this topic asks the cluster first."""
        self._refreshed_at.pop(topic, None)

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """What is known of a topic, asked for if unknown or old; ApiError UNKNOWN_TOPIC_OR_PARTITION if absent.

        With `create`, a broker that creates topics on first use does so, and we wait until it is there.
        """
        retrying = Retrying(self.options, self.randomness, timeout_ms=self.options.unknown_topic_wait_ms)
        known = self.known_topic(name)
        while known is None:
            try:
                await self.refresh([name], create=create)
            except ApiError as error:
                await retrying.pause(error)
            known = self.metadata.topics.get(name)
        return known

    def known_topic(self, name: str) -> TopicInfo | None:
        """What `topic` would return without asking anybody, if it would."""
        topic = self.metadata.topics.get(name)
        if topic is None:
            return None
        age_s = asyncio.get_running_loop().time() - self._refreshed_at.get(name, float("-inf"))
        return topic if age_s * 1000 < self.options.metadata_max_age_ms else None

    def known_leader(self, partition: TopicPartition) -> Leader | None:
        """What `leader` would return without asking anybody, if it would."""
        topic = self.known_topic(partition.topic)
        info = topic.partitions.get(partition.partition) if topic is not None else None
        if info is None or info.leader not in self.metadata.brokers:
            return None
        return Leader(info.leader, info.leader_epoch)

    async def leader(self, partition: TopicPartition) -> Leader:
        """Who leads the partition; ApiError LEADER_NOT_AVAILABLE (retriable) while none does."""
        topic = await self.topic(partition.topic)
        info = topic.partitions.get(partition.partition)
        if info is None:
            self.mark_stale(partition.topic)
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {partition.topic!r} has no partition {partition.partition}; "
                f"it has {len(topic.partitions)}, numbered from 0",
            )
        if info.leader not in self.metadata.brokers:
            self.mark_stale(partition.topic)
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"no broker leads {partition} at the moment")
        return Leader(info.leader, info.leader_epoch)

    async def retry(self, attempt: Callable[[], Awaitable[Result]], *, topics: Iterable[str] = ()) -> Result:
        """Run something that may be run twice until it succeeds, fails for good or time is up."""
        retrying = Retrying(self.options, self.randomness)
        names = list(topics)
        while True:
            try:
                return await attempt()
            except (ApiError, ClientError) as error:
                await retrying.pause(error)
                if asks_for_new_metadata(error):
                    await self._refresh_metadata(names)

    async def _refresh_metadata(self, topics: Iterable[str]) -> None:
        """Ask for the brokers now and for the topics when they are next needed; failing here decides nothing."""
        for name in topics:
            self.mark_stale(name)
        with contextlib.suppress(ApiError, ClientError):
            await self.refresh(())


def no_broker_reachable(addresses: Sequence[Address], failures: Sequence[Exception]) -> ConnectionFailed:
    """The one sentence for "no broker answers", naming what was tried, why it failed and what to do."""
    names = ", ".join(str(address) for address in addresses)
    reasons = dict.fromkeys(
        str(failure).removeprefix(f"{address}: ") for address, failure in zip(addresses, failures, strict=True)
    )
    is_refused = any(isinstance(failure.__cause__, ConnectionRefusedError) for failure in failures)
    advice = "; start one with `martlet up`" if is_refused else ""
    return ConnectionFailed(f"no broker reachable at {names}: {'; '.join(reasons)}{advice}")

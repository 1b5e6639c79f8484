"""Many group members in one process: they join, take their part and send heartbeats at a fixed pace, each measured.

    python -m bench.group_members < SPECIFICATION > RESULTS        (JSON, one object a line)

Rules: every member has a connection of its own, as real clients do. Three lines are printed, each after one line of
input: when all are connected (with the round trips of ApiVersions at the same pace, the limit of this process and
machine), when all have joined and hold their partitions, and after the heartbeats.
"""

import asyncio
import json
import random
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final, TypeVar

from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import encode_request_frame, read_response_header
from martlet.wire.message_codec import decode, encode
from martlet.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from martlet.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from martlet.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from martlet.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_LENGTH: Final = Struct(">i")
_JOIN_VERSION: Final = 9
_SYNC_VERSION: Final = 5
_HEARTBEAT_VERSION: Final = 4
_CONSUMER_HEARTBEAT_VERSION: Final = 1
_MEMBER_ID_REQUIRED: Final = 79
_SESSION_TIMEOUT_MS: Final = 60_000
_METADATA: Final = bytes(100)
_ASSIGNMENT: Final = bytes(60)
_SETTLE_PAUSE_SECONDS: Final = 0.3
_SETTLED_ROUNDS: Final = 3

T = TypeVar("T")


@dataclass
class Specification:
    """What the parent process asks for."""

    port: int
    protocol: str
    groups: int
    members: int
    """Members of each group."""
    topic: str
    seconds: float
    interval_seconds: float


class Link(asyncio.Protocol):
    """One connection with one request under way at most."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._waiting: asyncio.Future[bytes] | None = None
        self._transport: asyncio.Transport | None = None
        self._correlation_id = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        received = self._received
        received += data
        if len(received) >= 4 and len(received) >= 4 + _LENGTH.unpack_from(received)[0]:
            frame = bytes(received[4:])
            received.clear()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_result(frame)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(ConnectionError("the broker closed the connection"))

    async def exchange(self, key: ApiKey, version: int, body: bytes) -> memoryview:
        assert self._transport is not None
        self._correlation_id += 1
        self._waiting = asyncio.get_running_loop().create_future()
        self._transport.write(encode_request_frame(key, version, self._correlation_id, "bench", body))
        frame = await self._waiting
        _, position = read_response_header(frame, key, version)
        return memoryview(frame)[position:]

    async def call(self, key: ApiKey, version: int, request: object, answer: type[T]) -> T:
        return decode(answer, version, await self.exchange(key, version, encode(request, version)))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()


@dataclass
class Member(ABC):
    """One member of one group, with its own connection."""

    group: str
    topic: str
    link: Link
    number: int
    member_id: str = ""
    epoch: int = 0
    """The generation of a classic member."""
    owned: list[TopicPartitions] = field(default_factory=list)
    changes: int = 0
    """Heartbeats that brought something new when nothing should change any more."""

    @abstractmethod
    async def join(self) -> None:
        """Become a member."""

    @abstractmethod
    async def heartbeat(self) -> bool:
        """One heartbeat; whether all is as it was."""


class ClassicMember(Member):
    """Joins, syncs (the leader hands out an assignment for everybody) and sends Heartbeat."""

    async def join(self) -> None:
        while True:
            request = JoinGroupRequest(
                group_id=self.group,
                session_timeout_ms=_SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=_SESSION_TIMEOUT_MS,
                member_id=self.member_id,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=_METADATA)],
            )
            joined = await self.link.call(ApiKey.JOIN_GROUP, _JOIN_VERSION, request, JoinGroupResponse)
            if joined.error_code == _MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code:
                raise RuntimeError(f"join: error {joined.error_code}")
            self.epoch = joined.generation_id
            assignments = [SyncGroupRequestAssignment(one.member_id, _ASSIGNMENT) for one in joined.members]
            sync = SyncGroupRequest(
                group_id=self.group,
                generation_id=self.epoch,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments=assignments,
            )
            synced = await self.link.call(ApiKey.SYNC_GROUP, _SYNC_VERSION, sync, SyncGroupResponse)
            if not synced.error_code:
                return

    async def heartbeat(self) -> bool:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.epoch, member_id=self.member_id)
        answer = await self.link.call(ApiKey.HEARTBEAT, _HEARTBEAT_VERSION, request, HeartbeatResponse)
        return not answer.error_code


class ConsumerMember(Member):
    """Joins with ConsumerGroupHeartbeat and acknowledges what it is given with the next one."""

    async def join(self) -> None:
        self.member_id = f"member-{self.number:06}-of-the-bench"
        await self._beat(full=True)

    async def heartbeat(self) -> bool:
        before = self.epoch
        return await self._beat(full=False) and self.epoch == before

    async def _beat(self, *, full: bool) -> bool:
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group,
            member_id=self.member_id,
            member_epoch=self.epoch,
            rebalance_timeout_ms=_SESSION_TIMEOUT_MS if full else -1,
            subscribed_topic_names=[self.topic] if full else None,
            topic_partitions=[TopicPartitions(topic_id=one.topic_id, partitions=one.partitions) for one in self.owned],
        )
        key, version = ApiKey.CONSUMER_GROUP_HEARTBEAT, _CONSUMER_HEARTBEAT_VERSION
        answer = await self.link.call(key, version, request, ConsumerGroupHeartbeatResponse)
        if answer.error_code:
            raise RuntimeError(f"heartbeat: error {answer.error_code} {answer.error_message}")
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = answer.assignment.topic_partitions
        return answer.assignment is None


async def _connect(specification: Specification) -> list[Member]:
    loop = asyncio.get_running_loop()
    kind = ClassicMember if specification.protocol == "classic" else ConsumerMember
    members: list[Member] = []
    for number in range(specification.groups * specification.members):
        _, link = await loop.create_connection(Link, "127.0.0.1", specification.port)
        group = f"{specification.protocol}-{number // specification.members}"
        members.append(kind(group, specification.topic, link, number))
    return members


async def _at_pace(
    members: list[Member], specification: Specification, action: Callable[[Member], Awaitable[None]]
) -> list[float]:
    """Have every member do this once per interval, each at its own moment; the milliseconds each took."""
    elapsed_ms: list[float] = []
    ends_at = time.perf_counter() + specification.seconds

    async def repeat(member: Member, pause_seconds: float) -> None:
        next_at = time.perf_counter() + pause_seconds
        while next_at < ends_at:
            await asyncio.sleep(max(0.0, next_at - time.perf_counter()))
            started = time.perf_counter()
            await action(member)
            elapsed_ms.append((time.perf_counter() - started) * 1000)
            next_at = max(next_at + specification.interval_seconds, time.perf_counter())

    spread = random.Random(0)
    await asyncio.gather(*(repeat(one, spread.random() * specification.interval_seconds) for one in members))
    return elapsed_ms


async def _ask_versions(member: Member) -> None:
    await member.link.exchange(ApiKey.API_VERSIONS, 0, b"")


async def _beat(member: Member) -> None:
    if not await member.heartbeat():
        member.changes += 1


async def _settle(members: list[Member]) -> None:
    """Until no member's assignment has changed for some rounds."""
    quiet_rounds = 0
    while quiet_rounds < _SETTLED_ROUNDS:
        await asyncio.sleep(_SETTLE_PAUSE_SECONDS)
        unchanged = await asyncio.gather(*(one.heartbeat() for one in members))
        quiet_rounds = quiet_rounds + 1 if all(unchanged) else 0


def _percentiles(elapsed_ms: list[float]) -> dict[str, float]:
    ordered = sorted(elapsed_ms)
    last = len(ordered) - 1
    return {
        "count": len(ordered),
        "p50": ordered[last // 2],
        "p99": ordered[last * 99 // 100],
        "max": ordered[last],
    }


async def _run(specification: Specification, next_line: Callable[[], Awaitable[str]]) -> None:
    members = await _connect(specification)
    print(json.dumps({"versions": _percentiles(await _at_pace(members, specification, _ask_versions))}), flush=True)
    await next_line()
    started = time.perf_counter()
    await asyncio.gather(*(one.join() for one in members))
    joined_seconds = time.perf_counter() - started
    await _settle(members)
    settled_seconds = time.perf_counter() - started - _SETTLED_ROUNDS * _SETTLE_PAUSE_SECONDS
    print(json.dumps({"joined_seconds": joined_seconds, "settled_seconds": settled_seconds}), flush=True)
    await next_line()
    elapsed_ms = await _at_pace(members, specification, _beat)
    changed = sum(one.changes for one in members)
    print(json.dumps({"heartbeats": _percentiles(elapsed_ms), "unsettled": changed}), flush=True)
    await next_line()
    for one in members:
        one.link.close()


def main() -> None:
    specification = Specification(**json.loads(sys.stdin.readline()))

    async def next_line() -> str:
        return await asyncio.to_thread(sys.stdin.readline)

    try:
        asyncio.run(_run(specification, next_line))
    except (RuntimeError, OSError) as error:
        print(json.dumps({"failed": f"{type(error).__name__}: {error}"}), flush=True)


if __name__ == "__main__":
    main()

"""An HTTP server that answers as a test tells it to: etcd's lies, silences and slips, which a real one shows seldom.

Each connection is served by its own task; every request is kept for the test to look at.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple, Self

from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_gateway import LEASE_KEEP_ALIVE, LEASE_REVOKE, RANGE, TXN
from martlet.stores.etcd_options import EtcdAddress, EtcdEndpoint, EtcdLimits, EtcdOptions

QUICK = EtcdLimits(connect_seconds=5, request_seconds=2, probe_seconds=1)
"""Only silence is waited for; every other answer comes at once, but a busy machine may keep it back for a while."""


class Seen(NamedTuple):
    """A request as it came."""

    path: str
    headers: dict[str, str]
    message: dict[str, object]


class Raw(NamedTuple):
    """Bytes to send as they are, after which the connection is closed, or kept open in silence."""

    data: bytes
    then_close: bool = True


Answer = tuple[int, object] | Raw
Answerer = Callable[[Seen], Answer]

SILENCE = Raw(b"", then_close=False)
HANG_UP = Raw(b"")


def header(revision: int = 1, cluster: int = 7) -> dict[str, object]:
    return {"cluster_id": str(cluster), "member_id": "9", "revision": str(revision), "raft_term": "2"}


def ok(revision: int = 1, cluster: int = 7, **more: object) -> Answer:
    return 200, {"header": header(revision, cluster), **more}


def fault(code: int, text: str, status: int = 400) -> Answer:
    return status, {"error": text, "message": text, "code": code}


class ScriptedServer:
    """An async context manager; `answer` is asked for everything but the version."""

    def __init__(self, answer: Answerer, version: Answer | None = None) -> None:
        self.answer = answer
        self.version: Answer = version or (200, {"etcdserver": "3.4.42", "etcdcluster": "3.4.0"})
        self.seen: list[Seen] = []
        self.connections = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self._server.wait_closed()

    @property
    def endpoint(self) -> EtcdEndpoint:
        assert self._server is not None
        return EtcdEndpoint("127.0.0.1", self._server.sockets[0].getsockname()[1])

    def options(self, *others: EtcdEndpoint, user: str | None = None, password: str = "") -> EtcdOptions:
        address = EtcdAddress((self.endpoint, *others), "/test/")
        return EtcdOptions(address, user=user, password=password, limits=QUICK)

    def paths(self) -> list[str]:
        return [seen.path for seen in self.seen]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while await self._serve_one(reader, writer):
                pass
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        writer.transport.abort()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.rstrip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        path = first.split()[1]
        if path == "/version":
            answer = self.version
        else:
            self.seen.append(Seen(path, headers, json.loads(body)))
            answer = self.answer(self.seen[-1])
        return await _send(writer, answer)


async def _send(writer: asyncio.StreamWriter, answer: Answer) -> bool:
    if isinstance(answer, Raw):
        writer.write(answer.data)
        await writer.drain()
        if not answer.then_close:
            await asyncio.Event().wait()
        return False
    status, message = answer
    body = message if isinstance(message, bytes) else json.dumps(message).encode()
    writer.write(f"HTTP/1.1 {status} X\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return True


def script(**by_name: Answer) -> ScriptedServer:
    """A server that answers reads well and one kind of call as told."""
    paths = {"txn": TXN, "range": RANGE, "keep_alive": LEASE_KEEP_ALIVE, "revoke": LEASE_REVOKE}
    answers = {paths[name]: answer for name, answer in by_name.items()}
    return ScriptedServer(lambda seen: answers.get(seen.path, ok()))


@asynccontextmanager
async def opened(server: ScriptedServer, *others: EtcdEndpoint) -> AsyncIterator[EtcdStore]:
    async with server:
        store = await EtcdStore.open(server.options(*others))
        try:
            yield store
        finally:
            await store.close()

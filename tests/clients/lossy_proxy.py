"""A relay between clients and a broker that can lose the answer to a publish: the broker did the work.

It reads frames, so that it loses answers to Produce requests only, and then closes the connection as a failing
network would.
"""

import socket
import struct
import threading
from typing import Final

from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey

_PREFIX: Final = struct.Struct(">i")
_PRODUCE: Final = struct.pack(">h", ApiKey.PRODUCE)


class LossyProxy:
    """Listens on a port of its own; the broker behind it must advertise that port."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._to_lose = 0
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._upstream = ("", 0)
        self.lost = 0
        """Answers lost so far."""
        self.direct = ""
        """The broker's own address, past the relay."""
        self.servers = f"127.0.0.1:{self._listening.getsockname()[1]}"

    def start(self, broker: RunningBroker) -> None:
        self.direct = str(broker.app.kafka_address)
        host, _, port = self.direct.rpartition(":")
        self._upstream = (host, int(port))
        self._run(self._accept)

    def lose_answers(self, count: int) -> None:
        """Lose the next answers to publishes."""
        with self._lock:
            self._to_lose = count

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in self._sockets:
            _end(one)
        for thread in self._threads:
            thread.join(10)

    def _run(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listening.accept()
            except OSError:
                return
            upstream = socket.create_connection(self._upstream)
            self._sockets += (client, upstream)
            publishes: set[bytes] = set()
            self._run(self._relay_requests, client, upstream, publishes)
            self._run(self._relay_answers, upstream, client, publishes)

    def _relay_requests(self, client: socket.socket, upstream: socket.socket, publishes: set[bytes]) -> None:
        while (frame := _read_frame(client)) is not None:
            if frame[4:6] == _PRODUCE:
                publishes.add(frame[8:12])
            if not _send(upstream, frame):
                break
        _end(upstream)
        _end(client)

    def _relay_answers(self, upstream: socket.socket, client: socket.socket, publishes: set[bytes]) -> None:
        while (frame := _read_frame(upstream)) is not None:
            if frame[4:8] in publishes and self._may_lose():
                break
            if not _send(client, frame):
                break
        _end(upstream)
        _end(client)

    def _may_lose(self) -> bool:
        with self._lock:
            if not self._to_lose:
                return False
            self._to_lose -= 1
            self.lost += 1
            return True


def _read_frame(source: socket.socket) -> bytes | None:
    """The next frame with its length, None when the connection is over."""
    prefix = _read(source, 4)
    if prefix is None:
        return None
    content = _read(source, _PREFIX.unpack(prefix)[0])
    return None if content is None else prefix + content


def _read(source: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        try:
            chunk = source.recv(size - len(data))
        except OSError:
            return None
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def _send(target: socket.socket, data: bytes) -> bool:
    try:
        target.sendall(data)
    except OSError:
        return False
    return True


def _end(one: socket.socket) -> None:
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        one.close()

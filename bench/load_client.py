"""The client of the raw figures: a process that costs as little as possible, so that the server is the limit.

    python -m bench.load_client < SPECIFICATION > RESULT        (both one JSON object)

Rules: nothing of Martlet is imported, no request is encoded and no record is looked at while the clock runs. Requests
come ready-made from a file; the same bytes go to the broker and to the bare loop.

How it works, by the specification's `role`:
- `publish`: keeps up to `in_flight` requests unanswered, sent with sendfile from the page cache. Every answer's error
  code is checked (at `error_at`, when given).
- `fetch`: sends the requests in turn and lets the kernel discard the answers' bytes; each must have the expected size.
- `latency`: one request at a time at `rate` per second; the time from sending it to having its whole answer.
- `delivery`: the same, but measured is the time until a fetch that was waiting on a second connection is answered.
- `hold`: opens `count` connections, has `request` answered on each, prints a line and keeps them until its input ends.
"""

import json
import os
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Final

_PREFIX: Final = Struct(">i")
_ERROR: Final = Struct(">h")
_TIMEOUT_SECONDS: Final = 120.0
_DISCARD_BYTES: Final = 4 << 20
_OFFSET: Final = Struct(">q")


@dataclass
class Specification:
    """What to do, as the parent process wrote it."""

    role: str
    port: int
    frames_path: str = ""
    frame_sizes: list[int] = field(default_factory=list)
    warmup_requests: int = 0
    requests: int = 0
    seconds_max: float = 60.0
    in_flight: int = 5
    error_at: int = -1
    answer_sizes: list[int] = field(default_factory=list)
    rate: float = 200.0
    offset_at: int = -1
    """Where in the fetch of `delivery` its offset stands; it grows by one with every publish."""
    first_offset: int = 0
    count: int = 0


class AnswerError(Exception):
    """The server answered something else than it should have."""


class Connection:
    """A blocking connection that reads answers frame by frame."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A timeout in the kernel instead of in Python, which would poll before every call.
        self.socket.settimeout(None)
        limit = Struct("@qq").pack(int(_TIMEOUT_SECONDS), 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self._received = bytearray()

    def send_from(self, descriptor: int, position: int, size: int) -> None:
        while size:
            sent = os.sendfile(self.socket.fileno(), descriptor, position, size)
            position += sent
            size -= sent

    def answers(self) -> list[bytes]:
        """Wait for bytes and return the frames complete by them, without their lengths; maybe none."""
        data = self.socket.recv(1 << 16)
        if not data:
            raise AnswerError("the server closed the connection")
        received = self._received
        received += data
        found = []
        position = 0
        while len(received) - position >= 4:
            end = position + 4 + _PREFIX.unpack_from(received, position)[0]
            if end > len(received):
                break
            found.append(bytes(received[position + 4 : end]))
            position = end
        del received[:position]
        return found

    def answer(self) -> bytes:
        """The one answer that is due."""
        while True:
            found = self.answers()
            if found:
                return found[0]

    def discard_answer(self, scratch: bytearray) -> int:
        """Take in one answer without copying it out of the kernel; returns its size, the length included."""
        prefix = self.socket.recv(4, socket.MSG_WAITALL)
        if len(prefix) < 4:
            raise AnswerError("the server closed the connection")
        left: int = _PREFIX.unpack(prefix)[0]
        size = 4 + left
        while left:
            taken = self.socket.recv_into(scratch, min(left, len(scratch)), socket.MSG_TRUNC)
            if not taken:
                raise AnswerError("the server closed the connection inside an answer")
            left -= taken
        return size


class Frames:
    """The ready-made requests in their file, endlessly in turn."""

    def __init__(self, path: str, sizes: list[int]) -> None:
        self.descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self.places: list[tuple[int, int]] = []
        position = 0
        for size in sizes:
            self.places.append((position, size))
            position += size

    def in_turn(self) -> Iterator[tuple[int, int]]:
        while True:
            yield from self.places

    def content(self, number: int) -> bytes:
        position, size = self.places[number]
        return os.pread(self.descriptor, size, position)


def run_publish(spec: Specification) -> dict[str, Any]:
    """Send as fast as the window allows."""
    connection = Connection(spec.port)
    frames = Frames(spec.frames_path, spec.frame_sizes)
    turn = frames.in_turn()
    _publish(connection, frames.descriptor, turn, spec, spec.warmup_requests, 600.0)
    started, cpu_started = time.perf_counter(), time.process_time()
    requests, sent_bytes = _publish(connection, frames.descriptor, turn, spec, spec.requests, spec.seconds_max)
    return {
        "requests": requests,
        "bytes": sent_bytes,
        "seconds": time.perf_counter() - started,
        "client_cpu_seconds": time.process_time() - cpu_started,
    }


def _publish(
    connection: Connection,
    descriptor: int,
    turn: Iterator[tuple[int, int]],
    spec: Specification,
    requests: int,
    seconds_max: float,
) -> tuple[int, int]:
    deadline = time.perf_counter() + seconds_max
    outstanding = sent = sent_bytes = 0
    while sent < requests and time.perf_counter() < deadline:
        position, size = next(turn)
        connection.send_from(descriptor, position, size)
        sent += 1
        sent_bytes += size
        outstanding += 1
        while outstanding >= spec.in_flight:
            outstanding -= _check(connection.answers(), spec.error_at)
    while outstanding:
        outstanding -= _check(connection.answers(), spec.error_at)
    return sent, sent_bytes


def _check(answers: list[bytes], error_at: int) -> int:
    if error_at >= 0:
        for answer in answers:
            (code,) = _ERROR.unpack_from(answer, error_at)
            if code:
                raise AnswerError(f"a publish was refused with error {code}: {answer!r}")
    return len(answers)


def run_fetch(spec: Specification) -> dict[str, Any]:
    """Ask for everything in turn, `in_flight` requests ahead."""
    connection = Connection(spec.port)
    frames = Frames(spec.frames_path, spec.frame_sizes)
    requests = [frames.content(number) for number in range(len(spec.frame_sizes))]
    asked = 0
    scratch = bytearray(_DISCARD_BYTES)

    def fetch(count: int, seconds_max: float) -> tuple[int, int]:
        nonlocal asked
        first = answered = asked
        deadline = time.perf_counter() + seconds_max
        received_bytes = 0
        target = asked + count
        while answered < target:
            while asked < target and asked - answered < spec.in_flight:
                connection.socket.sendall(requests[asked % len(requests)])
                asked += 1
            size = connection.discard_answer(scratch)
            if size != spec.answer_sizes[answered % len(requests)]:
                raise AnswerError(f"answer {answered} has {size} bytes")
            answered += 1
            received_bytes += size
            if time.perf_counter() > deadline:
                target = asked
        return answered - first, received_bytes

    fetch(spec.warmup_requests, 600.0)
    started, cpu_started = time.perf_counter(), time.process_time()
    count, received_bytes = fetch(spec.requests, spec.seconds_max)
    return {
        "requests": count,
        "bytes": received_bytes,
        "seconds": time.perf_counter() - started,
        "client_cpu_seconds": time.process_time() - cpu_started,
    }


def run_latency(spec: Specification) -> dict[str, Any]:
    """Times from request to answer, in microseconds."""
    connection = Connection(spec.port)
    frames = Frames(spec.frames_path, spec.frame_sizes)
    request = frames.content(0)

    def measure() -> float:
        started = time.perf_counter()
        connection.socket.sendall(request)
        answer = connection.answer()
        elapsed = time.perf_counter() - started
        _check([answer], spec.error_at)
        return elapsed

    return {"microseconds": [round(1e6 * seconds, 1) for seconds in _at_rate(spec, measure)]}


def run_delivery(spec: Specification) -> dict[str, Any]:
    """Times from sending a publish to having the answer of a fetch that waited for it, in microseconds."""
    publisher, reader = Connection(spec.port), Connection(spec.port)
    frames = Frames(spec.frames_path, spec.frame_sizes)
    publish, fetch = frames.content(0), bytearray(frames.content(1))
    offset = spec.first_offset

    def wait_for_next() -> None:
        nonlocal offset
        _OFFSET.pack_into(fetch, spec.offset_at, offset)
        offset += 1
        reader.socket.sendall(fetch)

    def measure() -> float:
        started = time.perf_counter()
        publisher.socket.sendall(publish)
        reader.answer()
        elapsed = time.perf_counter() - started
        _check([publisher.answer()], spec.error_at)
        # The fetch must be waiting before the next publish comes, as that of a consumer at the end of a partition is.
        wait_for_next()
        return elapsed

    wait_for_next()
    time.sleep(0.1)
    return {"microseconds": [round(1e6 * seconds, 1) for seconds in _at_rate(spec, measure)]}


def _at_rate(spec: Specification, measure: Callable[[], float]) -> list[float]:
    elapsed: list[float] = []
    due = time.perf_counter()
    for _ in range(spec.warmup_requests + spec.requests):
        due += 1 / spec.rate
        time.sleep(max(0.001, due - time.perf_counter()))
        elapsed.append(measure())
    return elapsed[spec.warmup_requests :]


def run_hold(spec: Specification) -> dict[str, Any]:
    """Idle connections, each of which has been served once."""
    frames = Frames(spec.frames_path, spec.frame_sizes)
    request = frames.content(0)
    held: list[Connection] = []
    while len(held) < spec.count:
        group = [Connection(spec.port) for _ in range(min(100, spec.count - len(held)))]
        for connection in group:
            connection.socket.sendall(request)
        for connection in group:
            connection.answer()
        held += group
    print(json.dumps({"held": len(held)}), flush=True)
    sys.stdin.readline()
    with selectors.DefaultSelector() as selector:
        for connection in held:
            selector.register(connection.socket, selectors.EVENT_READ)
        # A connection that has become readable while nothing was asked has been closed by the server.
        closed = len(selector.select(0))
    return {"held": len(held), "closed": closed}


_ROLES: Final = {
    "publish": run_publish,
    "fetch": run_fetch,
    "latency": run_latency,
    "delivery": run_delivery,
    "hold": run_hold,
}


def main() -> None:
    specification = Specification(**json.loads(sys.stdin.readline()))
    try:
        result = _ROLES[specification.role](specification)
    except (AnswerError, OSError) as error:
        result = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()

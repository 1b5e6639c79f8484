"""The fuzz run: a broker in a process of its own gets a million damaged requests, and must neither fail nor grow.

    ./dev fuzz [--frames N] [--seed S] [--seconds T]

How it works: valid requests of all APIs and versions (`corpus`) are damaged (`mutations`) and sent over real
sockets, many connections at a time, a dozen frames in one write. A frame counts as processed when it was answered, when
the broker closed the connection at it, or when nothing came back for a while (a fetch that waits, a length that
promises more); what was sent behind such a frame is sent again on the next connection, so every frame is processed.
Meanwhile an ordinary client publishes and reads and checks what it gets.

It has failed when the broker counts an unexpected error, logs one or ends, when the ordinary client is disturbed, or
when the broker's memory has grown by more than a bound since a tenth of the run.

Proved by: tests/broker/test_fuzz_short.py
"""

import argparse
import asyncio
import json
import random
import tempfile
import time
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bench.fuzz.corpus import STABLE_TOPICS, Corpus
from bench.fuzz.mutations import Mutator
from bench.processes import BrokerProcess, free_port
from bench.wire_client import RequestRefused, TopicInfo, WireClient
from martlet.broker.app import new_event_loop
from martlet.wire.batch import build_batch

GROWTH_BYTES_MAX: Final = 64 << 20
DISTURBANCE_SECONDS_MAX: Final = 5.0
_CONNECTIONS: Final = 48
_FRAMES_PER_WRITE: Final = 12
_SILENCE_SECONDS: Final = 0.15
_UNEXPECTED: Final = 'error="unknown_server_error"'
_BYSTANDER_TOPIC: Final = "bystander"
_WARM_SHARE: Final = 0.1
_FAILURES_SHOWN: Final = 10


@dataclass(slots=True)
class FuzzResult:
    """What a run found."""

    frames: int = 0
    seconds: float = 0.0
    answered: int = 0
    closed: int = 0
    silent: int = 0
    pairs: int = 0
    unexpected: int = 0
    warm_bytes: int = 0
    end_bytes: int = 0
    bystander_rounds: int = 0
    bystander_slowest_seconds: float = 0.0
    complaints: list[str] = field(default_factory=list)

    @property
    def growth_bytes(self) -> int:
        return self.end_bytes - self.warm_bytes

    def report(self) -> str:
        rate = self.frames / self.seconds if self.seconds else 0
        lines = [
            f"{self.frames:,} damaged frames over {self.pairs} API versions in {self.seconds:.0f} s ({rate:,.0f}/s)",
            f"  answered {self.answered:,}, connection closed {self.closed:,}, left waiting {self.silent:,}",
            f"  unexpected errors {self.unexpected}",
            f"  memory {self.warm_bytes / 1e6:.1f} MB after a tenth, {self.end_bytes / 1e6:.1f} MB at the end",
            f"  ordinary client: {self.bystander_rounds:,} rounds, the slowest "
            f"{self.bystander_slowest_seconds * 1e3:.0f} ms",
        ]
        return "\n".join([*lines, *(f"FAILED: {complaint}" for complaint in self.complaints)])


class FuzzedConnection(asyncio.Protocol):
    """One connection: counts the frames that come back, and wakes its task when all did or nothing more will."""

    def __init__(self) -> None:
        self.answers = 0
        self.closed = False
        self.wanted = 0
        self._buffer = bytearray()
        self._changed = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        position = 0
        while len(self._buffer) - position >= 4:
            end = position + 4 + int.from_bytes(self._buffer[position : position + 4], "big")
            if end > len(self._buffer):
                break
            position = end
            self.answers += 1
        del self._buffer[:position]
        self._changed.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._changed.set()

    async def wait(self) -> None:
        """Return when everything is answered, the connection is closed, or nothing has come for a while."""
        try:
            while not self.closed and self.answers < self.wanted:
                self._changed.clear()
                async with asyncio.timeout(_SILENCE_SECONDS):
                    await self._changed.wait()
        except TimeoutError:
            return


class FuzzRun:
    """One run against one broker."""

    def __init__(self, process: BrokerProcess, operations_port: int, mutator: Mutator, frames: int) -> None:
        self._process = process
        self._operations_port = operations_port
        self._mutator = mutator
        self._frames = frames
        self._taken = 0
        self._supply: list[bytes] = []
        self._over = False
        self.result = FuzzResult()

    async def run(self, seconds: float) -> None:
        """Send everything, or what the time allows."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        watching = loop.run_in_executor(None, self._be_ordinary)
        connections = [asyncio.ensure_future(self._drive(started + seconds)) for _ in range(_CONNECTIONS)]
        for connection in connections:
            await connection
        self.result.seconds = loop.time() - started
        self._over = True
        await watching

    async def _drive(self, deadline: float) -> None:
        loop = asyncio.get_running_loop()
        pending: list[bytes] = []
        while True:
            pending += self._take(_FRAMES_PER_WRITE - len(pending))
            if not pending or loop.time() > deadline:
                return
            try:
                transport, connection = await loop.create_connection(FuzzedConnection, "127.0.0.1", self._process.port)
            except OSError as error:
                self._complain(f"no connection could be made: {error}")
                return
            connection.wanted = len(pending)
            transport.write(b"".join(pending))
            await connection.wait()
            transport.abort()
            del pending[: self._count(connection)]

    def _take(self, count: int) -> list[bytes]:
        count = min(count, self._frames - self._taken)
        if len(self._supply) < count:
            self._supply += self._mutator.frames(1000)
        taken, self._supply = self._supply[:count], self._supply[count:]
        self._taken += count
        return taken

    def _count(self, connection: FuzzedConnection) -> int:
        """How many frames that was, noted by their fates."""
        result = self.result
        answered = min(connection.answers, connection.wanted)
        result.answered += answered
        stopped = answered < connection.wanted
        if stopped and connection.closed:
            result.closed += 1
        elif stopped:
            result.silent += 1
        before = result.frames
        result.frames += answered + stopped
        warm = int(self._frames * _WARM_SHARE)
        if before < warm <= result.frames:
            result.warm_bytes = self._process.resident_bytes()
        return answered + stopped

    def _complain(self, text: str) -> None:
        if text not in self.result.complaints:
            self.result.complaints.append(text)

    # --- the ordinary client, in a thread of its own

    def _be_ordinary(self) -> None:
        try:
            with WireClient(self._process.port) as client:
                # Not flushed before it is acknowledged: it is the broker that is watched here, not the disk.
                client.create_topics([_BYSTANDER_TOPIC], martlet_flush="interval")
                topic = client.topic(_BYSTANDER_TOPIC)
                while not self._over:
                    self._ordinary_round(client, topic)
                    time.sleep(0.02)
        except (OSError, ValueError, RequestRefused) as error:
            self._complain(f"the ordinary client was disturbed: {error!r}")

    def _ordinary_round(self, client: WireClient, topic: TopicInfo) -> None:
        result = self.result
        value = b"round %d" % result.bystander_rounds
        started = time.monotonic()
        published = client.publish(topic.name, 0, build_batch([(time.time_ns() // 10**6, None, value, ())]))
        fetched = client.fetch(topic, 0, published.base_offset, max_bytes=1 << 20)
        result.bystander_slowest_seconds = max(result.bystander_slowest_seconds, time.monotonic() - started)
        if published.base_offset != result.bystander_rounds or value not in bytes(fetched.records):
            self._complain(f"the ordinary client got {published} and {len(fetched.records)} bytes")
        result.bystander_rounds += 1

    # --- the judgement

    def judge(self) -> FuzzResult:
        """Look at the broker after the run."""
        result = self.result
        url = f"http://127.0.0.1:{self._operations_port}/metrics"
        with urllib.request.urlopen(url, timeout=30) as response:
            # Not splitlines: a label may hold any character, and only a line feed ends a sample.
            lines = response.read().decode().split("\n")
        samples = dict(line.rsplit(" ", 1) for line in lines if line and line[0] != "#")
        result.unexpected = int(sum(float(count) for series, count in samples.items() if _UNEXPECTED in series))
        result.end_bytes = self._process.resident_bytes()
        if result.unexpected:
            self._complain(f"the broker counts {result.unexpected} unexpected errors")
        for failure in logged_failures(self._process.output):
            self._complain(failure)
        if result.warm_bytes and result.growth_bytes > GROWTH_BYTES_MAX:
            self._complain(f"memory has grown by {result.growth_bytes / 1e6:.1f} MB")
        if not result.bystander_rounds:
            self._complain("the ordinary client never got a turn")
        if result.bystander_slowest_seconds > DISTURBANCE_SECONDS_MAX:
            self._complain(f"the ordinary client waited {result.bystander_slowest_seconds:.1f} s")
        return result


def logged_failures(log: Path) -> list[str]:
    """What the broker's log says went wrong in it, each kind once, with its traceback."""
    kinds: dict[str, str] = {}
    for line in log.read_text("utf-8", "replace").splitlines():
        try:
            entry = json.loads(line)
        except ValueError:
            if "Traceback" in line:
                kinds.setdefault("", "the log holds a traceback outside its entries")
            continue
        if entry.get("level") in ("error", "critical"):
            trace = entry.get("exception", "")
            kinds.setdefault(trace or entry["message"], f"the broker logged: {entry['message']}\n{trace}")
    return list(kinds.values())[:_FAILURES_SHOWN]


def fuzz(frames: int, seed: int, seconds: float, directory: Path) -> FuzzResult:
    """Start a broker, send the frames, judge."""
    operations_port = free_port()
    extra = ["--operations", f"127.0.0.1:{operations_port}", "--set", "auto_create_topics=false"]
    chance = random.Random(seed)
    with BrokerProcess(directory, extra=extra) as process:
        process.start_and_wait()
        with WireClient(process.port) as client:
            client.create_topics(STABLE_TOPICS[:1], partitions=2, martlet_flush="never")
            client.create_topics(STABLE_TOPICS[1:], partitions=2, cleanup_policy="compact")
            topic_ids = [client.topic(name).topic_id for name in STABLE_TOPICS]
        corpus = Corpus(chance, topic_ids)
        run = FuzzRun(process, operations_port, Mutator(chance, corpus), frames)
        run.result.pairs = corpus.pairs
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(run.run(seconds))
        process.check_running()
        return run.judge()


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev fuzz", description="Send a broker damaged requests.")
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=time.time_ns() % 2**31)
    parser.add_argument("--seconds", type=float, default=3600.0, help="stop after this time even if frames are left")
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="martlet-fuzz-") as directory:
        result = fuzz(options.frames, options.seed, options.seconds, Path(directory))
    print(result.report())
    return 1 if result.complaints else 0

"""The comparison's start and rest: seconds to the first message, memory and processor time when idle, recovery.

A start is that of a system which was stopped cleanly with next to no data; making a data directory ready for the first
time is not counted. It ends with one message acknowledged by a client that was waiting for it.
"""

import contextlib
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Final

from bench.batches import build_values_batch
from bench.peers.report import Sample
from bench.peers.session import Session
from bench.peers.systems.system import MEBIBYTE
from bench.processes import HelperProcess
from bench.report import say
from bench.rounds import GIGABYTE, MEGABYTE
from bench.wire_client import RequestRefused, WireClient

_FIRST_SECONDS_MAX: Final = 120.0
_FREE_BYTES_PER_BYTE: Final = 2.5


def start(session: Session) -> Iterator[Sample]:
    """Idle first, then stop and start again."""
    time.sleep(session.context.sized(5, 1))
    before, seconds = session.running.cpu_seconds(), session.context.sized(10, 1)
    time.sleep(seconds)
    yield session.sample("fresh", "idle memory", "MiB", session.running.resident_mebibytes())
    idle = (session.running.cpu_seconds() - before) / seconds
    yield session.sample("fresh", "idle CPU", "% of a processor", 100 * idle)
    queue = session.queue()
    with contextlib.ExitStack() as stack:
        waiting = None if session.speaks_kafka else stack.enter_context(_waiting_client(session, queue))
        session.running.processes[0].stop()
        yield session.sample("fresh", "start to the first message", "s", _first_message(session, queue, waiting))
    session.warm_up()
    yield session.sample("after some load", "memory", "MiB", session.running.resident_mebibytes())


def recovery(session: Session) -> Iterator[Sample]:
    """With much data that was not flushed: after kill -9, and then after a clean stop."""
    size = session.context.sized(10 * GIGABYTE, 20 * MEGABYTE)
    free = shutil.disk_usage(session.context.work).free
    if free < size * _FREE_BYTES_PER_BYTE:
        size = GIGABYTE
        say(f"recovery with 1 GB only: {free / GIGABYTE:.0f} GB are free")
    queue, written = "", 0
    while written < size:
        part = min(size, 2 * GIGABYTE)
        result = session.publish_ready_made(1024, 0, part)
        queue, written = result["queue"], written + int(result["messages_in_all"]) * 1024
    case = f"{size / GIGABYTE:g} GB"
    process = session.running.processes[0]
    process.kill()
    yield session.sample(case, "restart after kill -9 to the first message", "s", _first_message(session, queue, None))
    yield session.sample(case, "clean stop", "s", process.stop())
    yield session.sample(case, "clean restart to the first message", "s", _first_message(session, queue, None))
    yield session.sample(case, "memory afterwards", "MiB", process.resident_bytes() / MEBIBYTE)


def _waiting_client(session: Session, queue: str) -> HelperProcess:
    """A client that is ready to publish, so that its own start does not count."""
    load = {"role": "first", "servers": session.running.servers, "queue": f"{queue}-first"}
    process = HelperProcess(session.running.system.protocol, load, python=session.running.system.client_python())
    process.answer()
    return process


def _first_message(session: Session, queue: str, waiting: HelperProcess | None) -> float:
    """Start the process; the seconds until it has accepted a message."""
    process = session.running.processes[0]
    started = time.monotonic()
    process.start()
    if waiting is not None:
        waiting.tell("")
        return float(waiting.answer()["at"]) - started
    batch = build_values_batch([b"first"])
    while True:
        try:
            with WireClient(process.port, timeout_seconds=5.0) as client:
                result = client.publish(queue, 0, batch)
            if not result.error_code:
                return time.monotonic() - started
        except (OSError, RequestRefused):
            process.check_running()
        if time.monotonic() - started > _FIRST_SECONDS_MAX:
            print(process.last_words(), file=sys.stderr)
            raise TimeoutError(f"no message accepted after {_FIRST_SECONDS_MAX:.0f} s")
        time.sleep(0.002)

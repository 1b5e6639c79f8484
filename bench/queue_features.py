"""What queues that look at their messages cost: how late delayed ones come, ten million pending, priority's waits.

    lateness   100 and 5,000 messages due a second on a broker, from due time to the worker, by percentiles
    pending    the index of ten million delayed messages: filling, memory, restart, what is due, cancelling
    priority   a million low messages wait: what one high one costs, and the worst wait in deliveries

Lateness is measured by the worker's clock, which is the broker's: both are processes of one machine. It includes the
long poll, the lease and its record, and the way through the client.
"""

import asyncio
import gc
import resource
import sys
import time
from pathlib import Path
from typing import Final

from bench.command import run_command
from bench.processes import BrokerProcess
from bench.report import Figure, say
from bench.rounds import Context
from martlet.base.addresses import Address
from martlet.base.disk import SystemDisk
from martlet.base.randomness import SystemRandomness
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.producer import Producer, ProducerOptions
from martlet.client.queues import Queues, Receiver, Settling, Verdict
from martlet.queues.delay_index import DelayIndex
from martlet.queues.engine import QueueEngine, QueueOptions, Settlement
from martlet.queues.engine import Verdict as EngineVerdict
from martlet.queues.features import Features, Seen

_TOPIC: Final = "work"
_LEAD_MS: Final = 3_000
"""Between publishing and the first due time."""
_NOW_MS: Final = 1_800_000_000_000


# --- lateness


def lateness(context: Context) -> list[Figure]:
    """From due time to the worker."""
    figures: list[Figure] = []
    for rate in (100, 5_000):
        seconds = context.sized(20, 3)
        parts = [Figure(f"late, {rate:,} due/s, {name}", "ms") for name in ("p50", "p99", "worst")]
        for _ in range(context.rounds):
            say(f"{rate:,} due a second for {seconds} s ...")
            with context.directory("late") as directory, BrokerProcess(directory) as broker:
                broker.start_and_wait()
                late = sorted(asyncio.run(_lateness(broker.port, rate, seconds)))
            for figure, at in zip(parts, (len(late) // 2, len(late) * 99 // 100, len(late) - 1), strict=True):
                figure.add(late[at])
        parts[0].note = f"{rate * seconds:,} messages, none early"
        figures += parts
    return figures


async def _lateness(port: int, rate: int, seconds: int) -> list[float]:
    count = rate * seconds
    async with Cluster([Address("127.0.0.1", port)]) as cluster:
        await _make_topic(cluster, "delay")
        await Queues(cluster).create("q", [_TOPIC], settings={"start": "earliest"})
        begin_ms = int(time.time() * 1000) + _LEAD_MS
        dues = [begin_ms + at * 1000 // rate for at in range(count)]
        publishing = asyncio.create_task(_publish(cluster, dues))
        late = await _receive(cluster, count)
        await publishing
    if min(late) < 0:
        raise RuntimeError(f"a message came {-min(late):.1f} ms before it was due")
    return late


async def _make_topic(cluster: Cluster, features: str) -> None:
    settings = {"martlet.queue.features": features}
    await Admin(cluster).create_topic(NewTopic(name=_TOPIC, partitions=1, configs=settings))


async def _publish(cluster: Cluster, dues: list[int]) -> None:
    async with Producer(cluster, ProducerOptions()) as producer:
        # Neighbours in the log are seldom due together.
        for due_ms in sorted(dues, key=lambda due_ms: due_ms * 7_919 % 1_009):
            headers = [("martlet-deliver-at", b"%d" % due_ms)]
            await producer.send(_TOPIC, b"%d" % due_ms, headers=headers, partition=0)


async def _receive(cluster: Cluster, count: int) -> list[float]:
    late: list[float] = []
    queues, receiver = Queues(cluster), Receiver(cluster, "q", "bench", messages_max=500)
    settling: set[asyncio.Task[object]] = set()
    try:
        while len(late) < count:
            received = await receiver.receive(1_000)
            now_ms = time.time() * 1000
            late += [now_ms - int(one.record.value or b"0") for one in received]
            if received:
                said = [Settling(one.lease, Verdict.ACCEPT) for one in received]
                task: asyncio.Task[object] = asyncio.create_task(queues.settle("q", said))
                settling.add(task)
                task.add_done_callback(settling.discard)
        await asyncio.gather(*settling)
    finally:
        await receiver.aclose()
    return late


# --- ten million pending


def pending(context: Context) -> list[Figure]:
    """The index alone, on this machine's disk."""
    count = context.sized(10_000_000, 200_000)
    names = ("add", "memory", "restart", "take what is due", "cancel")
    filled, memory, restart, taken, cancelled = (Figure(f"{count:,} pending: {name}", "") for name in names)
    for figure, unit in ((filled, "µs"), (memory, "MB"), (restart, "ms"), (taken, "µs"), (cancelled, "µs")):
        figure.unit = unit
    for _ in range(context.rounds):
        with context.directory("pending") as directory:
            _measure_pending(directory, count, (filled, memory, restart, taken, cancelled))
    return [filled, memory, restart, taken, cancelled]


def _measure_pending(directory: Path, count: int, figures: tuple[Figure, ...]) -> None:
    filled, memory, restart, taken, cancelled = figures
    say(f"{count:,} delayed messages ...")
    before = _resident_megabytes()
    index = DelayIndex(SystemDisk(), str(directory / "delay"))
    index.open(0)
    began = time.process_time()
    for offset in range(count):
        index.add(_NOW_MS + 60_000 + (offset * 7_919) % 2_000_000, offset)
    index.flush()
    filled.add((time.process_time() - began) * 1e6 / count)
    gc.collect()
    memory.add(_resident_megabytes() - before)
    index.close()
    began = time.perf_counter()
    index = DelayIndex(SystemDisk(), str(directory / "delay"))
    index.open(0)
    index.next_due_ms((_NOW_MS, 0))
    restart.add((time.perf_counter() - began) * 1000)
    began, number, at_ms, after = time.process_time(), 0, _NOW_MS + 60_000, (_NOW_MS, 0)
    while number < min(count, 200_000):
        found = index.due(after, at_ms, 500)
        number += len(found)
        after = found[-1] if len(found) == 500 else (at_ms, (1 << 63) - 1)
        at_ms += 0 if len(found) == 500 else 10
    taken.add((time.process_time() - began) * 1e6 / number)
    engine = QueueEngine(0, QueueOptions(), SystemRandomness(), Features(schedule=index))
    engine.end = 100_000
    engine.pass_wall_time(_NOW_MS, _NOW_MS)
    while (wanted := engine.look_wanted(1_000)) is not None:
        seen = [Seen(at, _NOW_MS + 60_000 + (at * 7_919) % 2_000_000) for at in range(*wanted)]
        engine.take_seen(*wanted, seen, _NOW_MS)
    began = time.process_time()
    for offset in range(50_000):
        engine.cancel(offset, _NOW_MS + 60_000 + (offset * 7_919) % 2_000_000)
    cancelled.add((time.process_time() - began) * 1e6 / 50_000)
    index.close()


def _resident_megabytes() -> float:
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
    return pages * resource.getpagesize() / 1e6


# --- priority


def priority(context: Context) -> list[Figure]:
    """The engine alone."""
    low = context.sized(1_000_000, 20_000)
    cost = Figure(f"a high message while {low:,} low ones wait", "µs", note="looked at, leased, settled, committed")
    wait = Figure("its worst wait", "deliveries")
    starved = Figure("low ones under endless high ones: worst gap", "deliveries", note="each eighth, once aged")
    for _ in range(context.rounds):
        say(f"{low:,} low messages wait ...")
        _measure_priority(low, cost, wait, starved)
    return [cost, wait, starved]


def _measure_priority(low: int, cost: Figure, wait: Figure, starved: Figure) -> None:
    engine = QueueEngine(0, QueueOptions(window_max=2 * low + 100_000), SystemRandomness(), Features(has_priority=True))
    now_ms = _NOW_MS
    _meet(engine, low, 0, now_ms)
    began, worst, last_low, gap, total = time.process_time(), 0, 0, 0, 5_000
    for number in range(total):
        now_ms += 10
        (high,) = _meet(engine, 1, 9, now_ms)
        for deliveries in range(1, 20):
            (delivery,) = engine.acquire("bench", 1, now_ms)
            engine.settle("bench", [Settlement(delivery.first, delivery.first, EngineVerdict.ACCEPT)], now_ms)
            change = engine.take_change()
            if change is not None:
                engine.committed(change)
            if delivery.first < low:
                gap, last_low = max(gap, number - last_low if last_low else 0), number
            if delivery.first == high:
                worst = max(worst, deliveries)
                break
    cost.add((time.process_time() - began) * 1e6 / total)
    wait.add(worst)
    starved.add(gap)


def _meet(engine: QueueEngine, count: int, level: int, now_ms: int) -> range:
    first = engine.end
    engine.end += count
    while (wanted := engine.look_wanted(1_000)) is not None:
        engine.take_seen(*wanted, [Seen(at, priority=level) for at in range(*wanted)], now_ms)
    return range(first, engine.end)


SUITES: Final = {"lateness": lateness, "pending": pending, "priority": priority}

if __name__ == "__main__":
    sys.exit(run_command("queue_features", (__doc__ or "").splitlines()[0], SUITES, rounds=3, quick_rounds=1))

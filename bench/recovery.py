"""How soon a broker accepts messages again, after a clean stop and after kill -9, with much data retained.

The data is written with `martlet.flush=never`, which is the worst case: nothing is known to be on the device but what
the broker writes back on its own. The kill comes in the middle of more such load. Beside a clean restart stands that of
a broker with next to no data, in turn with it, because the time must not depend on the data.
"""

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.batches import RequestFile
from bench.processes import BrokerProcess, HelperProcess, ProcessFailed
from bench.report import Figure, ratio_at_most, say
from bench.rounds import GIGABYTE, MEGABYTE, Context
from bench.startup import first_message_seconds
from bench.throughput import TOPIC, fill, publish_load

RESTART_RATIO_MAX: Final = 1.25
_FREE_BYTES_PER_BYTE: Final = 2.5
_PARTITIONS: Final = 4
_LOAD_SECONDS: Final = 1.0


def recovery(context: Context) -> list[Figure]:
    """1 GB, and 10 GB where the disk has space for it."""
    figures: list[Figure] = []
    sizes = [64 * MEGABYTE] if context.quick else [GIGABYTE, 10 * GIGABYTE]
    for size in sizes:
        free = shutil.disk_usage(context.work).free
        if free < size * _FREE_BYTES_PER_BYTE:
            say(f"recovery at {_text(size)} is left out: only {free / GIGABYTE:.0f} GB are free")
            continue
        with context.directory("recovery") as directory:
            figures += _Recovery(context, directory, size).run()
    return figures


def _text(size: int) -> str:
    return f"{size / GIGABYTE:g} GB" if size >= GIGABYTE else f"{size / MEGABYTE:g} MB"


@dataclass
class _Recovery:
    context: Context
    directory: Path
    size: int

    def run(self) -> list[Figure]:
        rounds = min(self.context.rounds, 3)
        say(f"recovery at {_text(self.size)} ...")
        with BrokerProcess(self.directory / "empty") as empty, BrokerProcess(self.directory / "full") as broker:
            first_message_seconds(empty)
            first_message_seconds(broker)
            started = time.perf_counter()
            requests = fill(broker, self.directory / "requests", 1024, self.size, partitions=_PARTITIONS)
            say(f"  {_text(self.size)} written in {time.perf_counter() - started:.0f} s")
            clean = Figure(f"clean restart at {_text(self.size)}", "s", target=ratio_at_most(RESTART_RATIO_MAX))
            stops: list[float] = []
            for number in range(rounds):
                order = (broker, empty) if number % 2 == 0 else (empty, broker)
                taken = {each: self._clean_restart(each) for each in order}
                clean.add(taken[broker][0], taken[empty][0])
                stops.append(taken[broker][1])
            empty.kill()
            clean.note = f"limit: with no data; the stop itself {max(stops):.2f} s at most"
            say(f"  clean restart {clean.value:.2f} s beside {clean.limit:.2f} s with no data")
            killed = Figure(f"restart after kill -9 at {_text(self.size)}", "s", limits=clean.limits[:1])
            for _ in range(rounds):
                killed.add(self._restart_after_kill(broker, requests))
                say(f"  restart after kill -9 {killed.values[-1]:.2f} s")
            killed.note = "limit: clean, with no data; killed while 1 KB messages are published with flush=never"
        return [clean, killed]

    def _clean_restart(self, broker: BrokerProcess) -> tuple[float, float]:
        """Seconds from start to the first message, and seconds the stop before took."""
        stop_seconds = broker.stop()
        return first_message_seconds(broker, is_new=False), stop_seconds

    def _restart_after_kill(self, broker: BrokerProcess, requests: RequestFile) -> float:
        load = publish_load(requests, broker.port, 100 * GIGABYTE, error_at=requests.error_at)
        with HelperProcess("bench.load_client", load) as client:
            time.sleep(0.2 + _LOAD_SECONDS)
            broker.kill()
            try:
                client.answer()
            except ProcessFailed:
                # As it should be: its server died under it.
                return first_message_seconds(broker, is_new=False)
        raise ProcessFailed(f"the load on {TOPIC} ended before its broker was killed")

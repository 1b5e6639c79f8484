"""How soon a broker works, and how much memory it takes: fresh, idle, loaded; and the test kit's start.

Start-up counts from starting the process to the first message accepted, with everything in between: interpreter,
imports, data directory, a new topic. Beside it stands the bare loop's process, which is what Python and uvloop take.
"""

import time
from contextlib import ExitStack
from typing import Final

from bench.batches import build_values_batch, write_bulk_requests
from bench.fetch_plan import make_plan
from bench.processes import BareProcess, BrokerProcess, HelperProcess, ServerProcess, run_helper
from bench.report import Figure, say, value_at_most
from bench.rounds import MEGABYTE, Context
from bench.throughput import TOPIC, publish_load
from bench.wire_client import patient_client

START_SECONDS_MAX: Final = 1.0
KIT_MS_MAX: Final = 200.0
IDLE_MEGABYTES_MAX: Final = 90.0
_MEBIBYTE: Final = 1 << 20
_PUBLISHERS: Final = 4


def first_message_seconds(server: ServerProcess, topic: str = "first", *, is_new: bool = True) -> float:
    """Start the process; the seconds until it has accepted a message."""
    batch = build_values_batch([b"first"])
    server.start()
    with patient_client(server.port) as client:
        if isinstance(server, BrokerProcess):
            if is_new:
                client.topic(topic)
            result = client.publish(topic, 0, batch)
            if result.error_code:
                raise RuntimeError(f"the first message was refused with error {result.error_code}")
        else:
            client.send_and_wait(topic, batch)
        return time.perf_counter() - server.started_at


def start_up(context: Context) -> list[Figure]:
    """A fresh broker, and the test kit's."""
    say("start-up ...")
    fresh = Figure("start to first message", "s", target=value_at_most(START_SECONDS_MAX, "s"))
    for _ in range(context.rounds):
        with context.directory("start") as directory, BrokerProcess(directory / "broker") as broker:
            value = first_message_seconds(broker)
            with BareProcess(directory / "bare") as bare:
                fresh.add(value, first_message_seconds(bare))
    fresh.note = "limit: the bare loop's process"
    kit = Figure("test kit, warm start", "ms", target=value_at_most(KIT_MS_MAX, "ms"))
    times = run_helper("bench.kit_start", {"rounds": context.rounds})
    for milliseconds in times["warm_ms"]:
        kit.add(milliseconds)
    kit.note = f"the first one, imports included, {times['cold_ms']:,.0f} ms"
    return [fresh, kit]


def memory(context: Context) -> list[Figure]:
    """Resident memory of a fresh broker after five seconds, and its highest under bulk load."""
    say("memory ...")
    idle = Figure("idle memory", "MiB", target=value_at_most(IDLE_MEGABYTES_MAX, "MiB"))
    loaded = Figure("highest memory under load", "MiB")
    with context.directory("memory") as directory, BrokerProcess(directory / "broker") as broker:
        with BareProcess(directory / "bare") as bare:
            broker.start_and_wait()
            bare.start_and_wait()
            time.sleep(5)
            idle.add(broker.resident_bytes() / _MEBIBYTE, bare.resident_bytes() / _MEBIBYTE)
        total_bytes = context.sized(800 * MEGABYTE, 40 * MEGABYTE)
        requests = write_bulk_requests(directory / "requests", TOPIC, 1024)
        with broker.client() as client:
            client.create_topics([TOPIC])
            client.topic(TOPIC)
        load = publish_load(requests, broker.port, total_bytes // _PUBLISHERS, error_at=requests.error_at)
        _run_together("bench.load_client", [load] * _PUBLISHERS)
        plan = make_plan(broker, TOPIC, directory / "plan", 8 << 20)
        _run_together("bench.load_client", [plan.load(broker.port, total_bytes, 2, 30.0)] * _PUBLISHERS)
        loaded.add(broker.resident_bytes_max() / _MEBIBYTE)
        loaded.note = (
            f"{_PUBLISHERS} publishers, then {_PUBLISHERS} consumers with 8 MB fetches; "
            f"afterwards {broker.resident_bytes() / _MEBIBYTE:.0f} MiB"
        )
    idle.note = "limit: the bare loop"
    return [idle, loaded]


def _run_together(module: str, specifications: list[dict[str, object]]) -> None:
    """Run several helpers at once and wait for all."""
    with ExitStack() as stack:
        processes = [stack.enter_context(HelperProcess(module, specification)) for specification in specifications]
        for process in processes:
            process.answer()

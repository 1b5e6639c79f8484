"""`./dev bench groups`: heartbeats of a thousand members and of a thousand groups while a producer publishes.

    python -m bench.groups [--quick] [--only NAME]... [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

For each protocol: one group of 1,000 members, and 1,000 groups of one member, every member on its own connection with
a heartbeat a second, which is three to five times a real client's pace. Beside it runs a publisher of 20 MB/s. The
limit of each round is ApiVersions, the cheapest request there is, on the same connections at the same pace, so it
holds what the machine and the measuring process cost. Memory is the broker's growth from "all connected" to "all
joined". Ends with status 1 when a target is missed.
"""

import sys
from functools import partial
from typing import Final

from bench.batches import write_bulk_requests
from bench.command import Suites, run_command
from bench.processes import BrokerProcess, HelperProcess
from bench.report import Figure, say, value_at_most
from bench.rounds import Context, settle

P99_TARGET_MS: Final = 50.0
_TOPIC: Final = "work"
_LOAD_TOPIC: Final = "load"
_LOAD_RATE: Final = 20.0
_VALUE_BYTES: Final = 1_000
_INTERVAL_SECONDS: Final = 1.0
_MEMBERS: Final = 1_000
_QUICK_MEMBERS: Final = 20


def _measure(context: Context, protocol: str, groups: int, members: int, figures: dict[str, Figure]) -> None:
    """One round: a fresh broker, its publisher, its members."""
    seconds = context.sized(15, 2)
    with context.directory(f"{protocol}-{groups}") as directory, BrokerProcess(directory / "broker") as broker:
        broker.start_and_wait()
        with broker.client() as client:
            client.create_topics([_TOPIC], partitions=members)
            client.create_topics([_LOAD_TOPIC])
        requests = write_bulk_requests(directory / "requests", _LOAD_TOPIC, _VALUE_BYTES)
        load = {
            "role": "latency",
            "port": broker.port,
            "frames_path": str(requests.path),
            "frame_sizes": requests.sizes,
            "error_at": requests.error_at,
            "rate": _LOAD_RATE,
            # More than anybody waits for: it is ended with the round.
            "requests": int(_LOAD_RATE * 600),
        }
        specification = {
            "port": broker.port,
            "protocol": protocol,
            "groups": groups,
            "members": members,
            "topic": _TOPIC,
            "seconds": seconds,
            "interval_seconds": _INTERVAL_SECONDS,
        }
        settle()
        with (
            HelperProcess("bench.load_client", load) as publisher,
            HelperProcess("bench.group_members", specification) as helper,
        ):
            versions = helper.answer()["versions"]
            before_bytes = broker.resident_bytes()
            helper.tell("join")
            joined = helper.answer()
            after_bytes = broker.resident_bytes()
            cpu_before = broker.cpu_seconds()
            helper.tell("heartbeat")
            beats = helper.answer()
            cpu_seconds = broker.cpu_seconds() - cpu_before
            helper.tell("end")
            publisher.kill()
    heartbeats = beats["heartbeats"]
    figures["p50"].add(heartbeats["p50"], versions["p50"])
    figures["p99"].add(heartbeats["p99"], versions["p99"])
    figures["max"].add(heartbeats["max"], versions["max"])
    figures["settled"].add(joined["settled_seconds"])
    figures["memory"].add((after_bytes - before_bytes) / 1024 / (groups * members))
    say(
        f"  p50 {heartbeats['p50']:.2f} ms, p99 {heartbeats['p99']:.2f} ms, max {heartbeats['max']:.1f} ms of"
        f" {heartbeats['count']:,} heartbeats ({beats['unsettled']} brought changes),"
        f" broker {cpu_seconds / seconds:.0%} of a processor; all settled after {joined['settled_seconds']:.2f} s"
    )


def _figures(protocol: str, is_one_group: bool, context: Context) -> list[Figure]:
    count = context.sized(_MEMBERS, _QUICK_MEMBERS)
    groups, members = (1, count) if is_one_group else (count, 1)
    name = f"{protocol}, {groups:,} × {members:,}"
    say(f"{name} ...")
    target = value_at_most(P99_TARGET_MS, "ms")
    figures = {
        "p50": Figure(f"{name}: heartbeat p50", "ms"),
        "p99": Figure(f"{name}: heartbeat p99", "ms", target=target),
        "max": Figure(f"{name}: slowest heartbeat", "ms"),
        "settled": Figure(f"{name}: first join to all settled", "s"),
        "memory": Figure(f"{name}: memory per {'member' if groups == 1 else 'group'}", "KiB"),
    }
    for _ in range(context.rounds):
        _measure(context, protocol, groups, members, figures)
    figures["p99"].note = "groups × members; the limit is ApiVersions at the same pace"
    return list(figures.values())


_SUITES: Final[Suites] = {
    f"{protocol}-{name}": partial(_figures, protocol, is_one_group)
    for protocol in ("classic", "consumer")
    for name, is_one_group in (("members", True), ("groups", False))
}


if __name__ == "__main__":
    sys.exit(run_command("groups", "Heartbeats of many members.", _SUITES, rounds=3, quick_rounds=1))

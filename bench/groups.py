"""`./dev bench groups`: heartbeats of a thousand members and of a thousand groups while a producer publishes.

    python -m bench.groups [--quick] [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

For each protocol: one group of 1,000 members, and 1,000 groups of one member, every member on its own connection with
a heartbeat a second, which is three to five times a real client's pace. Beside it runs a publisher of 20 MB/s. The
limit of each round is ApiVersions, the cheapest request there is, on the same connections at the same pace, so it
holds what the machine and the measuring process cost. Memory is the broker's growth from "all connected" to "all
joined". Ends with status 1 when a target is missed.
"""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from bench.batches import write_bulk_requests
from bench.processes import BrokerProcess, HelperProcess, end_with_children, raise_file_limit
from bench.report import Figure, format_markdown, format_table, machine_facts, say, value_at_most, write_json
from bench.rounds import Context, settle

P99_TARGET_MS: Final = 50.0
_TOPIC: Final = "work"
_LOAD_TOPIC: Final = "load"
_LOAD_RATE: Final = 20.0
_VALUE_BYTES: Final = 1_000
_INTERVAL_SECONDS: Final = 1.0
_SHAPES: Final = ((1, 1_000), (1_000, 1))
_QUICK_SHAPES: Final = ((1, 20), (20, 1))


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


def _figures(context: Context, protocol: str, groups: int, members: int) -> list[Figure]:
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


def main() -> int:
    parser = argparse.ArgumentParser(prog="./dev bench groups", description="Heartbeats of many members.")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: shows that all works")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each shape (3, or 1 with --quick)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--markdown", type=Path, help="also write them to this file as a table for a document")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    arguments = parser.parse_args()
    end_with_children()
    raise_file_limit()
    work = Path(tempfile.mkdtemp(prefix="martlet-bench-", dir=arguments.work_dir))
    context = Context(work, arguments.rounds or (1 if arguments.quick else 3), arguments.quick)
    facts = machine_facts(work) | {"rounds": str(context.rounds)}
    figures: list[Figure] = []
    try:
        for protocol in ("classic", "consumer"):
            for groups, members in _QUICK_SHAPES if arguments.quick else _SHAPES:
                figures += _figures(context, protocol, groups, members)
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if figures:
            print(f"\n{format_table(figures)}")
        if arguments.json:
            write_json(arguments.json, facts, figures)
        if arguments.markdown:
            arguments.markdown.write_text(format_markdown(facts, figures), "utf-8")
    missed = [figure.name for figure in figures if figure.verdict == "MISSED"]
    return 1 if missed and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main())

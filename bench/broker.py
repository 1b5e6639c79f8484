"""`./dev bench broker`: every figure the broker is judged by, each beside its limit measured in the same run.

    python -m bench.broker [--quick] [--only NAME]... [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

Needs a quiet machine with two processors or more, a real disk under `--work-dir` (not a file system in memory, or
flushing would cost nothing) and, for the largest recovery figure, 25 GB of free space. Ends with status 1 when a
target is missed. The figures' own modules say what each one means.
"""

import argparse
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.clients import clients
from bench.latency import latency
from bench.processes import end_with_children, raise_file_limit
from bench.recovery import recovery
from bench.report import Figure, format_markdown, format_table, machine_facts, say, write_json
from bench.rounds import Context
from bench.scaling import connections, partitions
from bench.startup import memory, start_up
from bench.throughput import bulk_consume, bulk_publish

_SUITES: Final[dict[str, Callable[[Context], list[Figure]]]] = {
    "publish": bulk_publish,
    "consume": bulk_consume,
    "latency": latency,
    "startup": start_up,
    "memory": memory,
    "partitions": partitions,
    "connections": connections,
    "recovery": recovery,
    "clients": clients,
}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="./dev bench broker", description="The broker's benchmarks.")
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that all works, the figures mean nothing"
    )
    parser.add_argument("--only", action="append", choices=list(_SUITES), help="run this part; may be repeated")
    parser.add_argument("--rounds", type=int, default=0, help="rounds of each comparison (5, or 2 with --quick)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--markdown", type=Path, help="also write them to this file as a table for a document")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    return parser.parse_args()


def main() -> int:
    arguments = _arguments()
    end_with_children()
    files = raise_file_limit()
    work = Path(tempfile.mkdtemp(prefix="martlet-bench-", dir=arguments.work_dir))
    context = Context(work, arguments.rounds or (2 if arguments.quick else 5), arguments.quick)
    facts = machine_facts(work) | {"open files allowed": str(files), "rounds": str(context.rounds)}
    for name, value in facts.items():
        print(f"{name:20}{value}")
    figures: list[Figure] = []
    started = time.monotonic()
    try:
        for name in arguments.only or _SUITES:
            figures += _SUITES[name](context)
            say(f"[{time.monotonic() - started:,.0f} s] {name} done")
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if figures:
            print(f"\n{format_table(figures)}")
        if arguments.json:
            write_json(arguments.json, facts, figures)
        if arguments.markdown:
            arguments.markdown.write_text(format_markdown(facts, figures), "utf-8")
    missed = [figure.name for figure in figures if figure.verdict == "MISSED"]
    if arguments.quick:
        print("\nA quick run: everything works; the figures mean nothing.")
        return 0
    print(f"\n{len(missed)} of {sum(figure.target is not None for figure in figures)} targets missed")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())

"""What the benchmark commands share: their options, running the parts in order, the report, the exit status."""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

from bench.processes import end_with_children, raise_file_limit
from bench.report import Figure, format_markdown, format_table, machine_facts, say, write_json
from bench.rounds import Context

Suites: TypeAlias = Mapping[str, Callable[[Context], list[Figure]]]


def run_command(name: str, description: str, suites: Suites, *, rounds: int, quick_rounds: int) -> int:
    """Run the parts asked for and report; 1 when a target is missed."""
    arguments = _arguments(name, description, suites, rounds, quick_rounds)
    end_with_children()
    files = raise_file_limit()
    work = Path(tempfile.mkdtemp(prefix="martlet-bench-", dir=arguments.work_dir))
    context = Context(work, arguments.rounds or (quick_rounds if arguments.quick else rounds), arguments.quick)
    facts = machine_facts(work) | {"open files allowed": str(files), "rounds": str(context.rounds)}
    for fact, value in facts.items():
        print(f"{fact:20}{value}")
    figures: list[Figure] = []
    started = time.monotonic()
    try:
        for suite in arguments.only or suites:
            figures += suites[suite](context)
            say(f"[{time.monotonic() - started:,.0f} s] {suite} done")
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


def _arguments(name: str, description: str, suites: Suites, rounds: int, quick_rounds: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"./dev bench {name}", description=description)
    parser.add_argument(
        "--quick", action="store_true", help="tiny sizes: shows that all works, the figures mean nothing"
    )
    parser.add_argument("--only", action="append", choices=list(suites), help="run this part; may be repeated")
    rounds_help = f"rounds of each comparison ({rounds}, or {quick_rounds} with --quick)"
    parser.add_argument("--rounds", type=int, default=0, help=rounds_help)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--markdown", type=Path, help="also write them to this file as a table for a document")
    parser.add_argument("--work-dir", type=Path, help="where the data goes (the directory for temporary files)")
    return parser.parse_args()

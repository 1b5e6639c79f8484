"""`./dev bench broker`: every figure the broker is judged by, each beside its limit measured in the same run.

    python -m bench.broker [--quick] [--only NAME]... [--rounds N] [--json FILE] [--markdown FILE] [--work-dir DIR]

Needs a quiet machine with two processors or more, a real disk under `--work-dir` (not a file system in memory, or
flushing would cost nothing) and, for the largest recovery figure, 25 GB of free space. Ends with status 1 when a
target is missed. The figures' own modules say what each one means.
"""

import sys
from typing import Final

from bench.clients import clients
from bench.command import Suites, run_command
from bench.latency import latency
from bench.recovery import recovery
from bench.scaling import connections, partitions
from bench.startup import memory, start_up
from bench.throughput import bulk_consume, bulk_publish

_SUITES: Final[Suites] = {
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


if __name__ == "__main__":
    sys.exit(run_command("broker", "The broker's benchmarks.", _SUITES, rounds=5, quick_rounds=2))

"""Runs many seeds from the command line: `python -m tests.sim.seeds FIRST COUNT`; one line per failing seed."""

import logging
import sys
import time
import traceback

from tests.sim.single_broker_run import run_seed

_REASON_CHARACTERS_MAX = 500


def main(first: int, count: int) -> int:
    logging.disable(logging.CRITICAL)
    began, failed, acknowledged, starts, boots = time.process_time(), 0, 0, 0, 0
    for seed in range(first, first + count):
        try:
            outcome = run_seed(seed)
            acknowledged += outcome.acknowledged
            starts += outcome.starts
            boots += outcome.boots
            reasons = outcome.violations
        except Exception as error:  # noqa: BLE001 - whatever it is, the seed has failed
            reasons = traceback.format_exception_only(error)
        if reasons:
            failed += 1
            reason = reasons[0].strip()[:_REASON_CHARACTERS_MAX]
            print(f"seed {seed} failed: {reason}; again: python -m tests.sim.seeds {seed} 1", flush=True)
    seconds = time.process_time() - began
    print(
        f"{count} seeds, {failed} failed, {count / seconds:.1f} seeds per second of processor time; "
        f"{acknowledged} messages acknowledged, {starts} broker starts, {boots} boots"
    )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))

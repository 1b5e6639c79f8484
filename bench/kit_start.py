"""Times the test kit's broker in a process of its own: once cold, then warm, as the second test of a session finds it.

python -m bench.kit_start < SPECIFICATION > RESULT        (both one JSON object)
"""

import json
import sys
import time


def main() -> None:
    specification = json.loads(sys.stdin.readline())
    started = time.perf_counter()
    from martlet.testing.running_broker import RunningBroker

    times_ms: list[float] = []
    for _ in range(specification["rounds"] + 1):
        broker = RunningBroker().start()
        times_ms.append(1000 * (time.perf_counter() - started))
        broker.stop()
        started = time.perf_counter()
    print(json.dumps({"cold_ms": times_ms[0], "warm_ms": times_ms[1:]}), flush=True)


if __name__ == "__main__":
    main()

"""What a broker in a process of its own runs: `python -m tests.broker.broker_entry SETTINGS`, the settings as JSON.

Prints one line of JSON with its addresses once it serves, and stops cleanly on SIGTERM.
"""

import asyncio
import json
import signal
import sys

from martlet.broker.app import BrokerApp, new_event_loop
from martlet.broker.ground.settings import BrokerSettings


async def serve(settings: BrokerSettings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = BrokerApp(settings)
    await app.start()
    sys.stdout.write(json.dumps({"kafka": str(app.kafka_address), "operations": str(app.operations_address)}) + "\n")
    sys.stdout.flush()
    waiting = [asyncio.create_task(stop.wait()), asyncio.create_task(app.wait_failed())]
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    await app.stop()
    if waiting[1] in done:
        raise SystemExit(f"the broker failed: {waiting[1].result()}")


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(BrokerSettings(**json.loads(sys.argv[1]))))

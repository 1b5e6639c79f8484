"""What a broker in a process of its own runs: `python -m tests.broker.broker_entry SETTINGS`, the settings as JSON.

Prints one line of JSON with its addresses once it serves, and stops cleanly on SIGTERM.
"""

import asyncio
import json
import signal
import sys

from martlet.broker.app import BrokerApp, new_event_loop
from martlet.broker.settings import BrokerSettings


async def serve(settings: BrokerSettings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    app = BrokerApp(settings)
    await app.start()
    sys.stdout.write(json.dumps({"kafka": str(app.kafka_address), "operations": str(app.operations_address)}) + "\n")
    sys.stdout.flush()
    await stop.wait()
    await app.stop()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(serve(BrokerSettings(**json.loads(sys.argv[1]))))

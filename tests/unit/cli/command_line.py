"""Runs a `martlet` command line inside the test's process, as the console script would, and keeps what it printed."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from click.testing import CliRunner

from martlet.cli.main import run
from tests.unit.client.fake_broker import FakeBroker


class Ran(NamedTuple):
    """How a command ended and what it printed."""

    exit_code: int
    stdout: str
    stderr: str


def martlet(*arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None) -> Ran:
    """Run one command line."""
    runner = CliRunner(env=environment)
    with runner.isolation(input=stdin, env=environment) as (out, err, _):
        try:
            exit_code = run(arguments)
        except SystemExit as end:
            # Shell completion ends inside click, which calls sys.exit itself.
            exit_code = int(end.code or 0)
        return Ran(int(exit_code), out.getvalue().decode(), err.getvalue().decode())


@contextmanager
def broker_in_thread(broker: FakeBroker) -> Iterator[str]:
    """Serve a fake broker from a thread with a loop of its own; gives its address."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        asyncio.run_coroutine_threadsafe(broker.start(), loop).result(5)
        yield str(broker.address)
        asyncio.run_coroutine_threadsafe(_stop(broker), loop).result(5)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(5)
        loop.close()


async def _stop(broker: FakeBroker) -> None:
    await broker.stop()
    others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def lines(*texts: Sequence[str] | str) -> str:
    """The texts as lines, each ended."""
    return "".join(f"{text}\n" for text in texts)

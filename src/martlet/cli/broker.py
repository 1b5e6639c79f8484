"""`martlet broker`, and `martlet up` with one broker: run it in the foreground until a signal ends it.

The first Ctrl-C or SIGTERM stops cleanly: open requests are answered, the log is flushed and marked clean, exit code 0.
A second Ctrl-C ends the process at once; what was acknowledged is safe either way, only the next start is slower.
"""

import asyncio
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Mapping
from types import FrameType
from typing import TYPE_CHECKING, Final

import click

from martlet.cli.configuration import Configuration, load_configuration
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.first_steps import print_first_steps
from martlet.cli.options import settings_options
from martlet.cli.output import print_facts, print_note

if TYPE_CHECKING:
    from martlet.broker.app import BrokerApp

PRECEDENCE = """\b
Settings come from flags, then MARTLET_* variables, then the settings file, then
defaults; `martlet config show` prints each with its origin. Port 0 takes any free
port and prints it."""

_UNUSABLE_DIRECTORY: Final = frozenset(
    {errno.EACCES, errno.EPERM, errno.EROFS, errno.EEXIST, errno.ENOTDIR, errno.ENOENT}
)
_SWITCH_SECONDS: Final = 0.0005
"""How long a thread that computes, as compaction does, may keep the event loop waiting. An answer needs the interpreter
several times, so with Python's 5 ms every answer would take 20 ms meanwhile."""


@click.command(epilog=PRECEDENCE)
@settings_options
def broker(flags: Mapping[str, tuple[str, str]], config_file: str | None) -> int:
    """Start one broker alone, in the foreground.

    For servers and service managers; `martlet up` is the friendlier start on your own machine.
    """
    return run_broker(load_configuration(flags, environment=os.environ, file=config_file), is_first_try=False)


def run_broker(configuration: Configuration, *, is_first_try: bool) -> int:
    """Until a signal ends it; the exit code. A first try is shown what to do next."""
    from martlet.broker.allocator import keep_large_blocks
    from martlet.broker.app import new_event_loop
    from martlet.observe.logs import set_up_logging

    check_data_directory(configuration.settings.data)
    for note in configuration.notes:
        print_note(f"note: {note}")
    set_up_logging(configuration.settings.log_level, configuration.settings.log_format)
    keep_large_blocks()
    sys.setswitchinterval(_SWITCH_SECONDS)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(_serve(configuration, is_first_try=is_first_try))


def check_data_directory(directory: str) -> None:
    """Make the directory if need be; CommandFailed naming --data when nothing can be kept there."""
    try:
        os.makedirs(directory, exist_ok=True)
        if not os.access(directory, os.R_OK | os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        if error.errno not in _UNUSABLE_DIRECTORY:
            raise
        is_file = error.errno in (errno.EEXIST, errno.ENOTDIR)
        reason = "it is a file, not a directory" if is_file else (error.strerror or str(error)).lower()
        raise CommandFailed(
            ExitCode.NOT_ALLOWED,
            f"cannot keep data in {directory}: {reason}",
            "choose another directory with --data DIR",
        ) from error


async def _serve(configuration: Configuration, *, is_first_try: bool) -> int:
    from martlet.broker.app import BrokerApp

    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, _begin_stop, stopping, loop)
    app = BrokerApp(configuration.settings)
    if not await _start(app, stopping):
        print_note("stopped before it served")
        return ExitCode.OK
    try:
        _announce(configuration, app, is_first_try=is_first_try)
        failure = await _wait_for_end(app, stopping)
    finally:
        await app.stop()
    if failure is not None:
        raise CommandFailed(ExitCode.FAILURE, f"the broker had to stop: {failure}", "its log above says what happened")
    print_note("stopped cleanly")
    return ExitCode.OK


async def _start(app: "BrokerApp", stopping: asyncio.Event) -> bool:
    """Whether it was started; False when a signal asked for the end before: a start may wait for its metadata store."""
    starting = asyncio.create_task(app.start())
    asked = asyncio.create_task(stopping.wait())
    await asyncio.wait((starting, asked), return_when=asyncio.FIRST_COMPLETED)
    asked.cancel()
    if not starting.done():
        starting.cancel()
        await asyncio.wait([starting])
        if starting.cancelled():
            return False
    starting.result()
    return True


async def _wait_for_end(app: "BrokerApp", stopping: asyncio.Event) -> BaseException | None:
    """Until a signal asks for the end (None) or the broker cannot go on (the reason)."""
    asked = asyncio.create_task(stopping.wait())
    failed = asyncio.create_task(app.wait_failed())
    try:
        await asyncio.wait((asked, failed), return_when=asyncio.FIRST_COMPLETED)
        return failed.result() if failed.done() else None
    finally:
        asked.cancel()
        failed.cancel()


def _begin_stop(stopping: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
    # From here on Ctrl-C must work even while the loop is busy with a long flush.
    loop.remove_signal_handler(signal.SIGINT)
    signal.signal(signal.SIGINT, _end_at_once)
    stopping.set()
    # The reader of our output may be gone; that is no reason to stay.
    with contextlib.suppress(OSError):
        print_note("stopping; Ctrl-C again ends at once")


def _end_at_once(_number: int, _frame: FrameType | None) -> None:
    sys.stderr.write("ended at once\n")
    sys.stderr.flush()
    os._exit(ExitCode.INTERRUPTED)


def _announce(configuration: Configuration, app: "BrokerApp", *, is_first_try: bool) -> None:
    """Say what is served, where; a service manager's log needs no hints."""
    from martlet import __version__

    kafka = str(app.kafka_address)
    others = {f"  Kafka ({one.name})": str(one.address) for one in app.listeners.all[1:]}
    click.echo(f"Martlet {__version__} is up.")
    print_facts(
        {
            "  Kafka": kafka,
            **others,
            "  operations": f"http://{app.operations_address}  (/healthz /readyz /metrics)",
            "  data": os.path.abspath(configuration.settings.data),
        }
    )
    if is_first_try:
        print_first_steps(kafka, ("publish", "hello", '"my first message"', "--create"), ("consume", "hello"))
    sys.stdout.flush()

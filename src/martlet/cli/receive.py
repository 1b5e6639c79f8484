"""`martlet receive`: messages of a subscription, printed and then settled.

A message is settled after it was printed; what was received and not printed, as after Ctrl-C, comes back when its lease
ends.
"""

import asyncio
import sys
from typing import TYPE_CHECKING

import click

from martlet.cli.message_format import Message, compile_format, json_line
from martlet.cli.options import Target, connects
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

_VERDICTS = ("accept", "release", "reject", "none")
_ROUND_MS = 1_000
_DEFAULT_FORMAT = "%s\\n"


@click.command()
@click.argument("subscription")
@click.option("--count", type=click.IntRange(min=1), help="Stop after so many messages.")
@click.option("--wait", "wait_seconds", type=float, help="Stop when nothing has come for so many seconds.")
@click.option("--then", "verdict", type=click.Choice(_VERDICTS), default="accept", show_default=True,
              help="What becomes of a message that is printed; none: nothing, its lease ends.")  # fmt: skip
@click.option("--reason", default="", help="Why they are rejected.")
@click.option("--holder", default="martlet-receive", show_default=True, help="The name of this worker.")
@click.option("--lease-ms", type=click.IntRange(min=100), help="Instead of what the subscription says.")
@click.option("--format", "template", help="What to print of each, in the letters of `martlet consume`.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as a line of JSON.")
@connects
def receive(
    subscription: str, count: int | None, wait_seconds: float | None, verdict: str, reason: str, holder: str,
    lease_ms: int | None, template: str | None, as_json: bool, target: Target,
) -> None:  # fmt: skip
    """Receive messages of SUBSCRIPTION, print their values, one a line, and acknowledge them."""
    if template is not None and as_json:
        raise click.UsageError("give --format or --json, not both")
    try:
        printer = json_line if as_json else compile_format(template or _DEFAULT_FORMAT)
    except ValueError as error:
        raise click.UsageError(f"--format: {error}") from error

    async def work(cluster: "Cluster") -> None:
        from martlet.client.queues import Queues, Receiver, Settling, Verdict

        queues = Queues(cluster)
        left = count
        receiver = Receiver(cluster, subscription, holder, messages_max=min(left or 100, 100), lease_ms=lease_ms)
        quiet_since = asyncio.get_running_loop().time()
        try:
            while left is None or left > 0:
                received = await receiver.receive(_ROUND_MS)
                now = asyncio.get_running_loop().time()
                if received:
                    quiet_since = now
                elif wait_seconds is not None and now - quiet_since >= wait_seconds:
                    return
                wanted = received if left is None else received[:left]
                for one in wanted:
                    sys.stdout.buffer.write(printer(Message(one.partition, *one.record)))
                sys.stdout.buffer.flush()
                if verdict != "none" and wanted:
                    said = Verdict[verdict.upper()]
                    settled = await queues.settle(
                        subscription, [Settling(one.lease, said, reason=reason) for one in wanted]
                    )
                    for error in settled:
                        if error is not None:
                            raise error
                if left is not None:
                    left -= len(wanted)
        finally:
            await receiver.aclose()

    run_with_cluster(target, work)

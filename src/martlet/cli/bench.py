"""`martlet bench`: how fast a cluster takes and gives messages, measured from here with the client of this command.

What is measured is cluster, network and this one process together; it says what one client sees, not what a cluster can
do at most. `publish` and `latency` write real messages into the topic.
"""

from typing import TYPE_CHECKING, Any

import click

from martlet.cli.latency_histogram import LatencyHistogram
from martlet.cli.options import TOPIC, Target, connects, json_option
from martlet.cli.output import format_count, print_facts, print_json, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.cli.bench_load import Moved
    from martlet.client.cluster import Cluster

_size_option = click.option(
    "--size", type=click.IntRange(min=1), default=100, show_default=True, metavar="BYTES", help="Of each message."
)
_acks_option = click.option(
    "--acks", type=click.Choice(["all", "1"]), default="all", show_default=True, help="Who must have each message."
)


@click.group()
def bench() -> None:
    """Measure a cluster: publishing, consuming, latency."""


@bench.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option(
    "--messages", type=click.IntRange(min=1), default=100_000, show_default=True, metavar="N", help="How many."
)
@_size_option
@_acks_option
@click.option(
    "--compression", type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]), default="none", show_default=True
)
@json_option
@connects
def publish(topic: str, messages: int, size: int, acks: str, compression: str, as_json: bool, target: Target) -> None:
    """Publish messages of random bytes as fast as they are taken."""

    async def work(cluster: "Cluster") -> "Moved":
        from martlet.cli.bench_load import publish_load

        return await publish_load(cluster, topic, messages, size, acks=acks, compression=compression)

    _print_moved(run_with_cluster(target, work), as_json)


@bench.command(short_help="Fetch the messages of a topic as fast as they come.")
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option("--messages", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.  [default: the end]")
@json_option
@connects
def consume(topic: str, messages: int | None, as_json: bool, target: Target) -> None:
    """Fetch the messages of a topic from its beginning as fast as they come, without decoding them."""

    async def work(cluster: "Cluster") -> "Moved":
        from martlet.cli.bench_load import consume_load

        return await consume_load(cluster, topic, messages)

    _print_moved(run_with_cluster(target, work), as_json)


@bench.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option(
    "--rate",
    type=click.FloatRange(min=0, min_open=True),
    metavar="N",
    default=100.0,
    show_default=True,
    help="Messages a second.",
)
@click.option("--messages", type=click.IntRange(min=1), default=1_000, show_default=True, metavar="N", help="How many.")
@_size_option
@_acks_option
@json_option
@connects
def latency(topic: str, rate: float, messages: int, size: int, acks: str, as_json: bool, target: Target) -> None:
    """Publish one message at a time at a steady rate, and read it back.

    Measured are the time until a message is acknowledged and the time until a reader that was waiting has it.
    """

    async def work(cluster: "Cluster") -> tuple[LatencyHistogram, LatencyHistogram]:
        from martlet.cli.bench_load import latency_load

        return await latency_load(cluster, topic, messages, size, rate=rate, acks=acks)

    acknowledged, delivered = run_with_cluster(target, work)
    if as_json:
        print_json({"acknowledged": acknowledged.to_json(), "delivered": delivered.to_json()})
        return
    for name, histogram in (("acknowledged", acknowledged), ("delivered", delivered)):
        print_facts({name: format_count(histogram.count, "message"), **histogram.facts()})
        print_table(["TIME", "MESSAGES", ""], histogram.rows())
        click.echo()


def _print_moved(moved: "Moved", as_json: bool) -> None:
    report: dict[str, Any] = moved.to_json()
    if as_json:
        print_json(report)
        return
    print_facts(
        {
            "messages": f"{moved.messages:,}",
            "bytes": f"{moved.size_bytes:,}",
            "seconds": f"{moved.seconds:.2f}",
            "messages/s": f"{report['messages_per_second']:,}",
            "MB/s": f"{report['bytes_per_second'] / 1e6:,.1f}",
        }
    )

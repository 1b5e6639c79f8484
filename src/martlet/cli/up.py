"""`martlet up`: one broker, or several, in the foreground on this machine."""

import os
from collections.abc import Mapping

import click

from martlet.cli.broker import PRECEDENCE, run_broker
from martlet.cli.configuration import load_configuration
from martlet.cli.options import settings_options


@click.command(epilog=PRECEDENCE)
@click.option(
    "--brokers",
    type=click.IntRange(1, 64),
    metavar="N",
    help="Start N brokers, one per core, say; ports are counted up from the ones given.",
)
@click.option(
    "--cluster",
    type=click.IntRange(1, 9),
    metavar="N",
    help="Start N brokers that play several hosts, with an etcd of their own, to try a cluster.",
)
@settings_options
def up(flags: Mapping[str, tuple[str, str]], config_file: str | None, brokers: int | None, cluster: int | None) -> int:
    """Start Martlet on this machine, in the foreground.

    Serves the Kafka protocol to any Kafka client, and health and metrics to operators. Ctrl-C stops it cleanly.
    """
    if brokers is not None and cluster is not None:
        raise click.UsageError("--brokers and --cluster do not go together")
    if cluster is not None or (brokers or 1) > 1:
        from martlet.cli.up_many import Wish, run_many

        return run_many(Wish(cluster or brokers or 1, cluster is not None), flags, config_file)
    return run_broker(load_configuration(flags, environment=os.environ, file=config_file), is_first_try=True)

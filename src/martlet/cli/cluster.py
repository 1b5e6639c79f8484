"""`martlet cluster`: how the brokers are, and taking one of them out of service."""

import asyncio
from typing import TYPE_CHECKING, Final

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.cli.confirmation import confirm
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import BROKER, Target, connects, json_option
from martlet.cli.output import format_count, format_duration, print_facts, print_json, print_note, print_table
from martlet.cli.partition import print_partitions
from martlet.cli.progress import Progress
from martlet.cli.session import run_with_cluster
from martlet.cli.status import ask_cluster_report, count_facts, describe_broker_state

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.cluster_admin import ClusterAdmin
    from martlet.client.reports import ClusterReport

_CHECK_INTERVAL_SECONDS: Final = 0.5
_PATIENCE_SECONDS: Final = 10.0
_PROBLEMS_SHOWN_MAX: Final = 10


@click.group()
def cluster() -> None:
    """Show how the brokers are, and take one of them out of service."""


# --- status


@cluster.command()
@click.option("--check", is_flag=True, help="Exit with code 8 if a partition has no leader or lacks replicas in sync.")
@json_option
@connects
def status(check: bool, as_json: bool, target: Target) -> int:
    """Show brokers, and what is not as it should be.

    Without a leader a partition can neither be read nor written. Under-replicated ones lack a replica in sync; below
    their minimum (min.insync.replicas) they refuse publishes with --acks all.
    """
    report = ask_cluster_report(target)
    if as_json:
        print_json(report.to_json() | {"problems": [partition.to_json() for partition in report.problems]})
    else:
        _print(report)
    return ExitCode.CHECK_FAILED if check and report.problems else ExitCode.OK


def _print(report: "ClusterReport") -> None:
    running = sum(one.broker.is_alive for one in report.brokers)
    missing = len(report.brokers) - running
    print_facts(
        {
            "cluster": report.cluster_id,
            "brokers": f"{running} running" + (f", {missing} not running" if missing else ""),
            **count_facts(report),
            "below minimum": report.below_minimum,
            "moving": report.moving,
        }
    )
    click.echo()
    print_table(
        ["BROKER", "ADDRESS", "RACK", "STATE", "LEADS", "REPLICAS", "IN SYNC", "CONTROLLER"],
        [
            [
                one.broker.id,
                str(one.broker.address),
                one.broker.rack or None,
                describe_broker_state(one),
                one.leads,
                one.replicas,
                one.in_sync,
                "yes" if one.broker.id == report.controller else "",
            ]
            for one in report.brokers
        ],
    )
    if not report.problems:
        return
    click.echo()
    print_partitions(report.problems[:_PROBLEMS_SHOWN_MAX])
    if len(report.problems) > _PROBLEMS_SHOWN_MAX:
        more = len(report.problems) - _PROBLEMS_SHOWN_MAX
        print_note(f"and {more:,} more; `martlet partition list --problems` shows all")


# --- taking a broker out


@cluster.command()
@click.argument("broker", type=BROKER)
@click.option("--wait/--no-wait", "waits", default=True, help="Follow it until the broker is empty.  [default: wait]")
@json_option
@connects
def drain(broker: int, waits: bool, as_json: bool, target: Target) -> int:
    """Empty a broker by moving all it holds to others.

    Nothing new is placed on it from now on. Publishing and consuming go on meanwhile, and no message is without its
    copies at any time. Afterwards stop the broker and remove it with `martlet cluster remove`, or take it back with
    `martlet cluster undrain`.
    """
    progress = Progress()
    began = _Drained(broker)
    try:
        run_with_cluster(target, lambda cluster: _drain(cluster, began, waits, progress))
    except KeyboardInterrupt:
        progress.end()
        print_note(
            f"broker {broker} is still being drained by the cluster; `martlet cluster status` shows it, "
            f"`martlet cluster undrain {broker}` ends it"
        )
        raise
    finally:
        progress.end()
    if as_json:
        print_json({"broker": broker, "draining": True, "moved": began.total - began.left, "replicas": began.left})
    elif began.left:
        held = format_count(began.left, "partition")
        print_note(f"broker {broker} is being drained of {held}; `martlet cluster status` shows how far it is")
    else:
        print_note(f"broker {broker} is empty: stop it, then `martlet cluster remove {broker}`")
    return ExitCode.OK


class _Drained:
    """How far a drain has come."""

    __slots__ = ("broker", "left", "total")

    def __init__(self, broker: int) -> None:
        self.broker = broker
        self.total = 0
        self.left = 0


async def _drain(cluster: "Cluster", drained: _Drained, waits: bool, progress: Progress) -> None:
    from martlet.client.cluster_admin import ClusterAdmin

    admin = ClusterAdmin(cluster)
    try:
        await admin.set_drain(drained.broker, wanted=True)
    except ApiError as error:
        if error.code != ErrorCode.INVALID_REPLICATION_FACTOR:
            raise
        lower = "`martlet partition move --all-topics --replication N` lowers the number of replicas"
        raise CommandFailed(ExitCode.CONFLICT, str(error), lower) from error
    drained.total = drained.left = await _held_by(cluster, drained.broker)
    loop = asyncio.get_running_loop()
    began = changed = loop.time()
    while waits and drained.left:
        text = f"moved {drained.total - drained.left:,} of {drained.total:,} partitions off broker {drained.broker}"
        if loop.time() - changed > _PATIENCE_SECONDS:
            text += await _hindrance(admin, drained.broker)
        progress.show(f"{text}, for {format_duration(int((loop.time() - began) * 1000))}")
        await asyncio.sleep(_CHECK_INTERVAL_SECONDS)
        left = await _held_by(cluster, drained.broker)
        if left != drained.left:
            changed = loop.time()
        drained.left, drained.total = left, max(drained.total, left)


async def _held_by(cluster: "Cluster", broker: int) -> int:
    from martlet.client.admin import Admin

    topics = await Admin(cluster).topics()
    return sum(broker in info.replicas for topic in topics.values() for info in topic.partitions.values())


async def _hindrance(admin: "ClusterAdmin", broker: int) -> str:
    """Why nothing seems to move, as far as that can be seen from here."""
    state, moves = await admin.state(), await admin.moves()
    drained = next((one for one in state.brokers if one.id == broker), None)
    if drained is None or not drained.is_draining:
        raise CommandFailed(ExitCode.CONFLICT, f"the draining of broker {broker} was ended by another command")
    if not drained.is_alive:
        return "; it is not running, and what it alone holds can only be moved when it is"
    away = [str(one.id) for one in state.brokers if not one.is_alive]
    if away:
        return f"; broker {', '.join(away)} is not running"
    return "; large partitions take their time" if moves else "; no other broker can take them now"


@cluster.command()
@click.argument("broker", type=BROKER)
@json_option
@connects
def undrain(broker: int, as_json: bool, target: Target) -> None:
    """Take back a broker that is being drained.

    It keeps what it has and gets new partitions again. What has moved away comes back with
    `martlet partition move --all-topics`.
    """

    async def work(cluster: "Cluster") -> None:
        from martlet.client.cluster_admin import ClusterAdmin

        await ClusterAdmin(cluster).set_drain(broker, wanted=False)

    run_with_cluster(target, work)
    if as_json:
        print_json({"broker": broker, "draining": False})
    else:
        print_note(f"broker {broker} takes partitions again")


@cluster.command()
@click.argument("broker", type=BROKER)
@click.option("--yes", is_flag=True, help="Do not ask.")
@json_option
@connects
def remove(broker: int, yes: bool, as_json: bool, target: Target) -> None:
    """Forget a broker that has been drained and stopped.

    It is refused while the broker runs or holds partitions.
    """
    if not yes:
        confirm(f"Remove broker {broker} from the cluster, for good?", "nothing was removed")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.cluster_admin import ClusterAdmin

        try:
            await ClusterAdmin(cluster).remove_broker(broker)
        except ApiError as error:
            if error.code != ErrorCode.INVALID_REQUEST:
                raise
            # It runs, holds partitions or is not drained: the cluster's own words say which.
            raise CommandFailed(ExitCode.CONFLICT, str(error), "`martlet cluster status` shows how it is") from error

    run_with_cluster(target, work)
    if as_json:
        print_json({"broker": broker, "removed": True})
    else:
        print_note(f"removed broker {broker}")

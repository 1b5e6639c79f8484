"""`martlet status`: whether the cluster is reachable and well."""

from typing import TYPE_CHECKING, Any

import click

import martlet
from martlet.cli.exit_codes import ExitCode
from martlet.cli.options import Target, connects, json_option
from martlet.cli.output import Cell, format_count, print_facts, print_json, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.reports import BrokerReport, ClusterReport


@click.command()
@click.option("--check", is_flag=True, help="Exit with code 8 if a partition has no leader or lacks replicas.")
@json_option
@connects
def status(check: bool, as_json: bool, target: Target) -> int:
    """Show whether the cluster is reachable and well.

    Partitions without a leader cannot be read or written; under-replicated ones lack a replica that should be in sync.
    """

    async def work(cluster: "Cluster") -> "tuple[ClusterReport, dict[str, list[int]]]":
        from martlet.client.reports import cluster_report

        return await cluster_report(cluster), await _served_apis(cluster)

    report, apis = run_with_cluster(target, work)
    if as_json:
        print_json({"reachable": True, **report.to_json(), "client_version": martlet.__version__, "apis": apis})
    else:
        _print(report, apis)
    return ExitCode.CHECK_FAILED if check and report.problems else ExitCode.OK


async def _served_apis(cluster: "Cluster") -> dict[str, list[int]]:
    """The oldest and newest version of each API that the broker serves."""
    from martlet.wire.api_keys import ApiKey

    known = {key.value: key.name for key in ApiKey}
    versions = (await cluster.any_connection()).versions
    return {known.get(key, str(key)): [found.oldest, found.newest] for key, found in sorted(versions.items())}


def ask_cluster_report(target: Target) -> "ClusterReport":
    async def work(cluster: "Cluster") -> "ClusterReport":
        from martlet.client.reports import cluster_report

        return await cluster_report(cluster)

    return run_with_cluster(target, work)


def count_facts(report: "ClusterReport") -> dict[str, Cell]:
    """How many there are of what, and of which something is wrong."""
    return {
        "topics": _with_internal(report.topics, report.internal_topics),
        "partitions": _with_internal(report.partitions, report.internal_partitions),
        "without leader": report.without_leader,
        "under-replicated": report.under_replicated,
    }


def _with_internal(count: int, internal: int) -> Cell:
    return f"{count:,} and {internal:,} internal" if internal else count


def describe_broker_state(report: "BrokerReport") -> str:
    state = "running" if report.broker.is_alive else "not running"
    if not report.broker.is_draining:
        return state
    return f"{state}, {'draining' if report.replicas else 'drained'}"


def _print(report: "ClusterReport", apis: dict[str, Any]) -> None:
    produce, fetch = apis.get("PRODUCE", ["-", "-"]), apis.get("FETCH", ["-", "-"])
    print_facts(
        {
            "cluster": report.cluster_id,
            **count_facts(report),
            "protocol": f"{format_count(len(apis), 'API')}, Produce to {produce[1]}, Fetch to {fetch[1]}",
            "this command": martlet.__version__,
        }
    )
    click.echo()
    print_table(
        ["BROKER", "ADDRESS", "RACK", "STATE", "LEADS", "CONTROLLER"],
        [
            [
                one.broker.id,
                str(one.broker.address),
                one.broker.rack or None,
                describe_broker_state(one),
                one.leads,
                "yes" if one.broker.id == report.controller else "",
            ]
            for one in report.brokers
        ],
    )

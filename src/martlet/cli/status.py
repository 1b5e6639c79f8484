"""`martlet status`: whether the cluster is reachable and well."""

from typing import TYPE_CHECKING, Any

import click

import martlet
from martlet.cli.exit_codes import ExitCode
from martlet.cli.options import Target, connects, json_option
from martlet.cli.output import format_count, print_facts, print_json, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.admin import ClusterDescription
    from martlet.client.cluster import Cluster
    from martlet.client.metadata import TopicInfo


@click.command()
@click.option("--check", is_flag=True, help="Exit with code 8 if a partition has no leader or lacks replicas.")
@json_option
@connects
def status(check: bool, as_json: bool, target: Target) -> int:
    """Show whether the cluster is reachable and well.

    Partitions without a leader cannot be read or written; under-replicated ones lack a copy that should be there.
    """

    async def work(cluster: "Cluster") -> dict[str, Any]:
        from martlet.client.admin import Admin

        admin = Admin(cluster)
        description = await admin.describe_cluster()
        return _report(description, await admin.topics())

    report = run_with_cluster(target, work)
    if as_json:
        print_json(report)
    else:
        _print(report)
    is_well = not report["partitions_without_leader"] and not report["partitions_under_replicated"]
    return ExitCode.CHECK_FAILED if check and not is_well else ExitCode.OK


def _report(description: "ClusterDescription", topics: dict[str, "TopicInfo"]) -> dict[str, Any]:
    from martlet.wire.api_keys import ApiKey

    partitions = [partition for topic in topics.values() for partition in topic.partitions.values()]
    led_by = {
        broker.id: sum(partition.leader == broker.id for partition in partitions) for broker in description.brokers
    }
    known = {key.value: key.name for key in ApiKey}
    return {
        "reachable": True,
        "cluster_id": description.cluster_id,
        "controller": description.controller_id,
        "brokers": [
            {"id": broker.id, "address": str(broker.address), "rack": broker.rack or None, "leads": led_by[broker.id]}
            for broker in description.brokers
        ],
        "topics": len(topics),
        "partitions": len(partitions),
        "partitions_without_leader": sum(partition.leader < 0 for partition in partitions),
        "partitions_under_replicated": sum(partition.is_under_replicated for partition in partitions),
        "client_version": martlet.__version__,
        "apis": {
            known.get(key, str(key)): [versions.oldest, versions.newest]
            for key, versions in sorted(description.versions.items())
        },
    }


def _print(report: dict[str, Any]) -> None:
    produce, fetch = report["apis"].get("PRODUCE", ["-", "-"]), report["apis"].get("FETCH", ["-", "-"])
    print_facts(
        {
            "cluster": report["cluster_id"],
            "topics": report["topics"],
            "partitions": report["partitions"],
            "without leader": report["partitions_without_leader"],
            "under-replicated": report["partitions_under_replicated"],
            "protocol": f"{format_count(len(report['apis']), 'API')}, Produce to {produce[1]}, Fetch to {fetch[1]}",
            "this command": report["client_version"],
        }
    )
    click.echo()
    print_table(
        ["BROKER", "ADDRESS", "RACK", "LEADS", "CONTROLLER"],
        [
            [
                broker["id"],
                broker["address"],
                broker["rack"],
                broker["leads"],
                "yes" if broker["id"] == report["controller"] else "",
            ]
            for broker in report["brokers"]
        ],
    )

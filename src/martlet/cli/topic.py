"""`martlet topic`: create, list, describe, alter, trim, export and delete topics."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import format_topic_id
from martlet.cli.confirmation import confirm_deletion
from martlet.cli.options import ASSIGNMENT, TOPIC, Target, connects, json_option
from martlet.cli.output import Cell, format_bytes, format_count, print_facts, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster
from martlet.cli.topic_definitions import export_topics, import_topics
from martlet.cli.topic_trim import trim

if TYPE_CHECKING:
    from martlet.client.admin import Admin
    from martlet.client.cluster import Cluster
    from martlet.client.reports import PartitionContent, TopicReport, TopicSummary


@click.group()
def topic() -> None:
    """Create, list, describe, alter, trim, export and delete topics."""


topic.add_command(trim)
topic.add_command(export_topics)
topic.add_command(import_topics)


@topic.command()
@click.argument("names", metavar="NAME...", nargs=-1, required=True)
@click.option(
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many partitions.  [default: the broker's default]",
)
@click.option(
    "--replication",
    "--replication-factor",
    "replication_factor",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many replicas of each partition, on as many brokers.  [default: the broker's default]",
)
@click.option(
    "--set",
    "set_values",
    multiple=True,
    type=ASSIGNMENT,
    help="A topic setting, like retention.ms=3600000. May be repeated.",
)
@click.option("--config", "more_values", multiple=True, type=ASSIGNMENT, hidden=True, help="The same as --set.")
@click.option("--if-not-exists", is_flag=True, help="A topic that exists is no error; it stays as it is.")
@json_option
@connects
def create(
    names: Sequence[str],
    partitions: int | None,
    replication_factor: int | None,
    set_values: Sequence[tuple[str, str]],
    more_values: Sequence[tuple[str, str]],
    if_not_exists: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Create one or more topics."""

    async def work(cluster: "Cluster") -> list[dict[str, Any]]:
        from martlet.client.admin import Admin, NewTopic

        admin = Admin(cluster)
        made = []
        for name in names:
            wanted = NewTopic(
                name=name,
                partitions=partitions or -1,
                replication_factor=replication_factor or -1,
                configs=dict([*set_values, *more_values]),
            )
            made.append(await _create_one(admin, wanted, if_not_exists=if_not_exists))
        return made

    made = run_with_cluster(target, work)
    if as_json:
        print_json(made)
        return
    for entry in made:
        if entry["created"]:
            print_note(
                f"created {entry['name']}: {format_count(entry['partitions'], 'partition')}, "
                f"{format_count(entry['replication_factor'], 'replica')}"
            )
        else:
            print_note(f"{entry['name']} exists already")


async def _create_one(admin: "Admin", wanted: Any, *, if_not_exists: bool) -> dict[str, Any]:
    try:
        created = await admin.create_topic(wanted)
    except ApiError as error:
        if not if_not_exists or error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
        return {"name": wanted.name, "created": False}
    return {
        "name": created.name,
        "created": True,
        "id": format_topic_id(created.id),
        "partitions": created.partitions,
        "replication_factor": created.replication_factor,
    }


@topic.command("list")
@click.option("--internal", is_flag=True, help="Include the topics Martlet keeps for itself.")
@click.option("--counts", is_flag=True, help="Also count the messages, by their offsets.")
@json_option
@connects
def list_topics(internal: bool, counts: bool, as_json: bool, target: Target) -> None:
    """List the topics."""

    async def work(cluster: "Cluster") -> "list[TopicSummary]":
        from martlet.client.reports import topic_summaries

        return await topic_summaries(cluster, internal=internal, counts=counts)

    found = run_with_cluster(target, work)
    if as_json:
        print_json([summary.to_json() for summary in found])
        return
    if not found:
        print_note("there are no topics; `martlet topic create NAME` makes one")
        return
    print_table(
        ["TOPIC", "PARTITIONS", "REPLICAS", *["MESSAGES"] * counts],
        [[one.info.name, len(one.info.partitions), one.replicas, *[one.messages] * counts] for one in found],
    )


@topic.command(short_help="Show a topic's partitions, offsets, sizes and settings.")
@click.argument("name", type=TOPIC, metavar="TOPIC")
@json_option
@connects
def describe(name: str, as_json: bool, target: Target) -> None:
    """Show a topic's partitions, offsets, sizes and the settings that differ from the defaults."""

    async def work(cluster: "Cluster") -> "TopicReport":
        from martlet.client.reports import topic_report

        return await topic_report(cluster, name)

    report = run_with_cluster(target, work)
    if as_json:
        print_json(report.to_json())
        return
    info = report.summary.info
    print_facts(
        {
            "topic": info.name,
            "id": format_topic_id(info.id),
            "partitions": len(info.partitions),
            "replicas": report.summary.replicas,
            "settings": ", ".join(f"{key}={value}" for key, value in report.configs.items()) or "all defaults",
        }
    )
    click.echo()
    # Only where open transactions hide something from readers of committed data.
    holds_back = any(content.held_back for content in report.partitions)
    print_table(
        ["PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "FIRST", "END", "MESSAGES", "SIZE"]
        + ["HELD BACK"] * holds_back,
        [[*_content_row(content), *[content.held_back] * holds_back] for content in report.partitions],
    )


def _content_row(content: "PartitionContent") -> list[Cell]:
    info, offsets = content.info, content.offsets
    return [
        info.index,
        None if info.leader < 0 else info.leader,
        info.leader_epoch,
        ",".join(map(str, info.replicas)),
        ",".join(map(str, info.in_sync)),
        None if offsets is None else offsets.start,
        None if offsets is None else offsets.stop,
        None if offsets is None else len(offsets),
        None if content.size_bytes is None else format_bytes(content.size_bytes),
    ]


@topic.command()
@click.argument("name", type=TOPIC, metavar="TOPIC")
@click.option(
    "--partitions", type=click.IntRange(min=1), metavar="N", help="Grow to N partitions; they never become fewer."
)
@click.option("--set", "set_values", multiple=True, type=ASSIGNMENT, help="Set a topic setting. May be repeated.")
@click.option("--unset", multiple=True, metavar="KEY", help="Return a setting to its default. May be repeated.")
@json_option
@connects
def alter(
    name: str,
    partitions: int | None,
    set_values: Sequence[tuple[str, str]],
    unset: Sequence[str],
    as_json: bool,
    target: Target,
) -> None:
    """Change a topic's settings or add partitions.

    More partitions change which partition a key goes to from then on.
    """
    both = sorted({key for key, _ in set_values} & set(unset))
    if both:
        raise click.UsageError(f"--set and --unset both name {', '.join(both)}")
    if partitions is None and not set_values and not unset:
        raise click.UsageError("nothing to change; give --partitions, --set or --unset")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.admin import Admin, ResourceType

        admin = Admin(cluster)
        if set_values or unset:
            await admin.alter_configs(ResourceType.TOPIC, name, set_values=dict(set_values), unset=unset)
        if partitions is not None:
            await admin.grow_topic(name, partitions=partitions)

    run_with_cluster(target, work)
    if as_json:
        print_json({"name": name, "partitions": partitions, "set": dict(set_values), "unset": list(unset)})
        return
    changes = [f"{key}={value}" for key, value in set_values] + [f"{key} back to its default" for key in unset]
    if partitions is not None:
        changes.append(format_count(partitions, "partition"))
    print_note(f"changed {name}: {', '.join(changes)}")


@topic.command()
@click.argument("names", type=TOPIC, metavar="TOPIC...", nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
@json_option
@connects
def delete(names: Sequence[str], yes: bool, if_exists: bool, as_json: bool, target: Target) -> None:
    """Delete topics with all their messages, for good."""
    if not yes:
        confirm_deletion(f"Delete {', '.join(names)} with all messages, for good?")

    async def work(cluster: "Cluster") -> list[dict[str, Any]]:
        return [await _delete_one(cluster, name, if_exists=if_exists) for name in names]

    done = run_with_cluster(target, work)
    if as_json:
        print_json(done)


async def _delete_one(cluster: "Cluster", name: str, *, if_exists: bool) -> dict[str, Any]:
    """Reported as it happens, because a later topic of the same command may fail."""
    from martlet.client.admin import Admin
    from martlet.client.errors import TopicMissing

    try:
        await Admin(cluster).delete_topic(name)
    except TopicMissing:
        if not if_exists:
            raise
        print_note(f"{name} does not exist")
        return {"name": name, "deleted": False}
    print_note(f"deleted {name}")
    return {"name": name, "deleted": True}

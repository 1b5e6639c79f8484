"""`martlet group`: list groups, show their members and lag, reset their offsets, delete them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition, by_topic
from martlet.cli.confirmation import confirm_deletion
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.group_lag import lag
from martlet.cli.group_reset import reset
from martlet.cli.options import GROUP, TOPIC_SELECTION, Target, TopicSelection, connects, json_option
from martlet.cli.output import format_count, print_facts, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.group_members import GroupDescription, GroupMember
    from martlet.client.groups import GroupListing, Groups

STATES: Final = (
    "Empty",
    "PreparingRebalance",
    "CompletingRebalance",
    "Assigning",
    "Reconciling",
    "Stable",
    "Dead",
)
TYPES: Final = ("classic", "consumer")


@click.group()
def group() -> None:
    """List groups, show their members and lag, reset and delete them."""


group.add_command(lag)
group.add_command(reset)


@group.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only groups in this state. May be repeated.",
)
@click.option(
    "--type",
    "types",
    type=click.Choice(TYPES, case_sensitive=False),
    multiple=True,
    help="Only groups of this type. May be repeated.",
)
@json_option
@connects
def list_groups(states: Sequence[str], types: Sequence[str], as_json: bool, target: Target) -> None:
    """List the groups.

    Members of a classic group assign partitions among themselves; a consumer group leaves that to the broker.
    """

    async def work(cluster: "Cluster") -> "list[GroupListing]":
        from martlet.client.groups import Groups

        return await Groups(cluster).listings(states=states, types=types)

    listings = run_with_cluster(target, work)
    if as_json:
        print_json(
            [
                {
                    "group": listing.group_id,
                    "type": listing.type,
                    "state": listing.state,
                    "protocol_type": listing.protocol_type,
                    "coordinator": listing.coordinator,
                }
                for listing in listings
            ]
        )
        return
    if not listings:
        wanted = "no group is like that" if states or types else "there are no groups"
        print_note(f"{wanted}; a group appears when its first consumer does")
        return
    print_table(
        ["GROUP", "TYPE", "STATE", "COORDINATOR"],
        [[listing.group_id, listing.type, listing.state, listing.coordinator] for listing in listings],
    )


@group.command()
@click.argument("name", type=GROUP, metavar="GROUP")
@json_option
@connects
def describe(name: str, as_json: bool, target: Target) -> None:
    """Show a group's state and its members with what they read."""

    async def work(cluster: "Cluster") -> "GroupDescription":
        from martlet.client.groups import Groups

        return await Groups(cluster).describe(name)

    found = run_with_cluster(target, work)
    if as_json:
        print_json(_description_json(found))
        return
    facts: dict[str, str | int | None] = {
        "group": found.group_id,
        "type": found.type,
        "state": found.state,
        "assignor": found.assignor or None,
        "coordinator": found.coordinator,
        "members": len(found.members),
    }
    if found.epoch is not None:
        facts |= {"epoch": found.epoch, "assignment epoch": found.assignment_epoch}
    print_facts(facts)
    if not found.members:
        return
    click.echo()
    has_epochs = found.epoch is not None
    has_instances = any(member.instance_id is not None for member in found.members)
    headers = ["MEMBER", "CLIENT", "HOST", *["INSTANCE"] * has_instances, *["EPOCH"] * has_epochs, "PARTITIONS"]
    print_table(headers, [_member_row(member, has_instances, has_epochs) for member in found.members])


def _member_row(member: "GroupMember", has_instances: bool, has_epochs: bool) -> list[str | int | None]:
    return [
        member.member_id,
        member.client_id,
        member.client_host,
        *([member.instance_id] if has_instances else []),
        *([member.epoch] if has_epochs else []),
        format_partitions(member.assigned) or None,
    ]


def format_partitions(partitions: Iterable[TopicPartition]) -> str:
    """`orders:0,1 audit:2`."""
    return " ".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic(partitions).items())


def _description_json(found: "GroupDescription") -> dict[str, Any]:
    return {
        "group": found.group_id,
        "type": found.type,
        "state": found.state,
        "protocol_type": found.protocol_type,
        "assignor": found.assignor or None,
        "coordinator": found.coordinator,
        "epoch": found.epoch,
        "assignment_epoch": found.assignment_epoch,
        "members": [
            {
                "member": member.member_id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.client_host,
                "rack": member.rack,
                "epoch": member.epoch,
                "topics": list(member.topics),
                "topic_regex": member.topic_regex,
                "assigned": _partitions_json(member.assigned),
                "target": None if member.target is None else _partitions_json(member.target),
            }
            for member in found.members
        ],
    }


def _partitions_json(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [{"topic": partition.topic, "partition": partition.partition} for partition in partitions]


@group.command(short_help="Delete groups, or what they have committed, for good.")
@click.argument("names", type=GROUP, metavar="GROUP...", nargs=-1, required=True)
@click.option(
    "--topic",
    "selections",
    type=TOPIC_SELECTION,
    multiple=True,
    help="Only forget the offsets in this topic or these partitions (TOPIC:0,3). May be repeated.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--if-exists", is_flag=True, help="A group that does not exist is no error.")
@json_option
@connects
def delete(
    names: Sequence[str],
    selections: Sequence[TopicSelection],
    yes: bool,
    if_exists: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Delete groups without members with all they have committed, for good.

    Their consumers start where their own settings say.
    """
    if not yes:
        what = " in these topics" if selections else " and the groups themselves"
        confirm_deletion(f"Delete the committed offsets of {', '.join(names)}{what}, for good?")

    async def work(cluster: "Cluster") -> list[dict[str, Any]]:
        from martlet.client.groups import Groups

        groups = Groups(cluster)
        return [await _delete_one(groups, name, selections, if_exists=if_exists) for name in dict.fromkeys(names)]

    done = run_with_cluster(target, work)
    if as_json:
        print_json(done)


async def _delete_one(
    groups: "Groups", name: str, selections: Sequence[TopicSelection], *, if_exists: bool
) -> dict[str, Any]:
    """Reported as it happens, because a later group of the same command may fail."""
    try:
        if selections:
            return await _delete_offsets(groups, name, selections)
        await groups.delete(name)
    except ApiError as error:
        if not if_exists or error.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        print_note(f"{name} does not exist")
        return {"group": name, "deleted": False}
    print_note(f"deleted {name}")
    return {"group": name, "deleted": True}


async def _delete_offsets(groups: "Groups", name: str, selections: Sequence[TopicSelection]) -> dict[str, Any]:
    committed = await groups.committed(name)
    chosen = [
        partition
        for partition in committed
        if any(
            partition.topic == selection.topic
            and (selection.partitions is None or partition.partition in selection.partitions)
            for selection in selections
        )
    ]
    if not chosen:
        topics = ", ".join(selection.topic for selection in selections)
        raise CommandFailed(
            ExitCode.NOT_FOUND,
            f"group {name!r} has committed nothing in {topics}",
            f"`martlet group lag {name}` shows what it has committed",
        )
    await groups.delete_offsets(name, chosen)
    print_note(f"deleted {format_count(len(chosen), 'offset')} of {name}: {format_partitions(chosen)}")
    return {"group": name, "deleted": False, "offsets_deleted": _partitions_json(chosen)}

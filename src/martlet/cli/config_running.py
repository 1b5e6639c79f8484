"""`martlet config get` and `set`: settings of brokers that run, of topics and of groups, asked and changed there."""

import difflib
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import ASSIGNMENT, BROKER, GROUP, TOPIC, Target, connects, json_option
from martlet.cli.output import print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.admin import ConfigEntry, ResourceType
    from martlet.client.cluster import Cluster

Function = TypeVar("Function", bound=Callable[..., Any])


class Owner(NamedTuple):
    """Whose settings are meant; without any of them, those of all brokers."""

    broker: int | None = None
    topic: str | None = None
    group: str | None = None

    @property
    def resource(self) -> "tuple[ResourceType, str]":
        from martlet.client.admin import ResourceType

        if self.topic is not None:
            return ResourceType.TOPIC, self.topic
        if self.group is not None:
            return ResourceType.GROUP, self.group
        return ResourceType.BROKER, "" if self.broker is None else str(self.broker)

    def __str__(self) -> str:
        if self.topic is not None:
            return f"topic {self.topic}"
        if self.group is not None:
            return f"group {self.group}"
        return "all brokers" if self.broker is None else f"broker {self.broker}"


def _names_owner(function: Function) -> Function:
    """Adds --broker, --topic and --group; at most one of them may be given."""
    for option in (
        click.option("--group", type=GROUP, help="The settings of this consumer group."),
        click.option("--topic", type=TOPIC, metavar="TOPIC", help="The settings of this topic."),
        click.option("--broker", type=BROKER, help="The settings of this broker."),
    ):
        function = option(function)
    return function


def _owner(broker: int | None, topic: str | None, group: str | None) -> Owner:
    if sum(each is not None for each in (broker, topic, group)) > 1:
        raise click.UsageError("give one of --broker, --topic and --group")
    return Owner(broker, topic, group)


@click.command("get")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@_names_owner
@json_option
@connects
def get_settings(
    names: Sequence[str], broker: int | None, topic: str | None, group: str | None, as_json: bool, target: Target
) -> None:
    """Show settings as they are in effect where Martlet runs.

    Without --broker, --topic or --group they are those of the first broker of the cluster.
    """
    owner = _owner(broker, topic, group)

    async def work(cluster: "Cluster") -> "tuple[Owner, list[ConfigEntry]]":
        from martlet.client.admin import Admin

        asked = Owner(broker=min(cluster.metadata.brokers)) if owner == Owner() else owner
        return asked, await Admin(cluster).configs(*asked.resource)

    asked, entries = run_with_cluster(target, work)
    known = {entry.name: entry for entry in entries}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise CommandFailed(
                ExitCode.NOT_FOUND,
                f"{asked} has no setting {name!r}",
                f"did you mean {close[0]!r}?" if close else "`martlet config get` lists them all",
            )
    print_entries([known[name] for name in dict.fromkeys(names)] or entries, asked, as_json=as_json)


def print_entries(entries: "Sequence[ConfigEntry]", owner: Owner, *, as_json: bool) -> None:
    """The settings, with a note whose they are."""
    if as_json:
        print_json(
            {
                entry.name: {
                    "value": entry.value,
                    "origin": _origin(entry),
                    "read_only": entry.is_read_only,
                    "help": entry.documentation,
                }
                for entry in entries
            }
        )
        return
    print_note(f"settings in effect for {owner}")
    print_table(
        ["SETTING", "VALUE", "ORIGIN", "MEANING"],
        [
            [entry.name, "(hidden)" if entry.is_sensitive else entry.value, _origin(entry), entry.documentation]
            for entry in entries
        ],
    )


def _origin(entry: "ConfigEntry") -> str:
    return entry.source.name.lower().replace("_", " ")


@click.command("set", short_help="Change settings of brokers, of a topic or of a group.")
@click.argument("assignments", metavar="[KEY=VALUE]...", nargs=-1, type=ASSIGNMENT)
@click.option("--unset", multiple=True, metavar="KEY", help="Return a setting to its default. May be repeated.")
@_names_owner
@json_option
@connects
def set_settings(
    assignments: Sequence[tuple[str, str]],
    unset: Sequence[str],
    broker: int | None,
    topic: str | None,
    group: str | None,
    as_json: bool,
    target: Target,
) -> None:
    """Change settings of brokers while they run, of a topic, or of a group.

    Without --broker, --topic or --group they are changed for all brokers that do not set them themselves. Settings
    that are fixed at a broker's start are refused.
    """
    owner = _owner(broker, topic, group)
    if not assignments and not unset:
        raise click.UsageError("nothing to change; give KEY=VALUE or --unset KEY")
    if both := sorted({key for key, _ in assignments} & set(unset)):
        raise click.UsageError(f"{', '.join(both)} cannot be set and unset at once")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.admin import Admin

        await Admin(cluster).alter_configs(*owner.resource, set_values=dict(assignments), unset=unset)

    run_with_cluster(target, work)
    if as_json:
        print_json({"for": str(owner), "set": dict(assignments), "unset": list(unset)})
        return
    changes = [f"{key}={value}" for key, value in assignments] + [f"{key} back to its default" for key in unset]
    print_note(f"changed for {owner}: {', '.join(changes)}")

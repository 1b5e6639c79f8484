"""`martlet topic export` and `import`: definitions of topics with their settings, as one JSON file."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TextIO

import click

from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import TOPIC, Target, connects, json_option
from martlet.cli.output import format_count, print_json, print_note
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.topic_definitions import TopicChange, TopicDefinition


@click.command("export")
@click.argument("names", type=TOPIC, metavar="[TOPIC]...", nargs=-1)
@click.option("--file", type=click.File("w", lazy=True), default="-", metavar="FILE", help="Write there.")
@connects
def export_topics(names: Sequence[str], file: TextIO, target: Target) -> None:
    """Print the definitions of topics, of all if none is named.

    They hold partitions, replicas and the settings that differ from the defaults, as JSON, for `martlet topic import`.
    """

    async def work(cluster: "Cluster") -> "list[TopicDefinition]":
        from martlet.client.admin import Admin
        from martlet.client.topic_definitions import export_definitions

        return await export_definitions(Admin(cluster), names)

    found = run_with_cluster(target, work)
    file.write(json.dumps({"topics": [definition.to_json() for definition in found]}, indent=2) + "\n")


@click.command("import", short_help="Make topics like their definitions in a file.")
@click.argument("file", type=click.File("r"), metavar="FILE")
@click.option("--dry-run", is_flag=True, help="Only show what would change.")
@json_option
@connects
def import_topics(file: TextIO, dry_run: bool, as_json: bool, target: Target) -> int:
    """Make topics like their definitions in a file; - reads standard input.

    Topics that do not exist are created. Others get more partitions and the settings of the file; a setting that the
    file does not name goes back to its default. Nothing is deleted, and other topics are left alone.
    """
    wanted = _read(file)

    async def work(cluster: "Cluster") -> "list[TopicChange]":
        from martlet.client.admin import Admin
        from martlet.client.topic_definitions import carry_out, plan_import, present_definitions

        admin = Admin(cluster)
        changes = plan_import(wanted, await present_definitions(admin, {definition.name for definition in wanted}))
        for change in changes:
            if not as_json:
                for line in change.describe():
                    click.echo(line)
            if change.is_needed and not dry_run:
                await carry_out(admin, change)
        return changes

    changes = run_with_cluster(target, work)
    obstacles = [obstacle for change in changes for obstacle in change.obstacles]
    if as_json:
        print_json([change.to_json() for change in changes])
    else:
        count = format_count(sum(change.is_needed for change in changes), "topic")
        print_note(f"would change {count}" if dry_run else f"changed {count}")
        for obstacle in obstacles:
            print_note(f"not done: {obstacle}")
    return ExitCode.CONFLICT if obstacles else ExitCode.OK


def _read(file: TextIO) -> "list[TopicDefinition]":
    from martlet.client.topic_definitions import read_definitions

    try:
        document: Any = json.load(file)
        return read_definitions(document)
    except json.JSONDecodeError as error:
        where = f"line {error.lineno}, column {error.colno}"
        raise CommandFailed(ExitCode.USAGE, f"{file.name} is not JSON: {where}") from None
    except ValueError as error:
        raise CommandFailed(
            ExitCode.USAGE, f"{file.name}: {error}", "`martlet topic export` prints such a file"
        ) from None

"""`martlet config`: settings, where each value comes from, and how to change them while brokers run."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from martlet.cli.config_running import Owner, get_settings, print_entries, set_settings
from martlet.cli.configuration import EXPLANATIONS, load_configuration
from martlet.cli.options import TOPIC, Target, connects, json_option, settings_options
from martlet.cli.output import print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.admin import ConfigEntry
    from martlet.client.cluster import Cluster


@click.group()
def config() -> None:
    """Show and change settings."""


config.add_command(get_settings)
config.add_command(set_settings)


@config.command(short_help="Show the settings that a broker started here would have.")
@click.option("--topic", type=TOPIC, metavar="TOPIC", help="Show this topic's settings, asked from the broker.")
@json_option
@settings_options
@connects
def show(
    topic: str | None, as_json: bool, flags: Mapping[str, tuple[str, str]], config_file: str | None, target: Target
) -> None:
    """Show the settings a broker started here with these flags would have, or those of a topic.

    Each value comes with its origin. For a broker: flag, environment, file or default. For a topic: the topic itself,
    the broker's settings, or the default.
    """
    if topic is not None:
        if flags or config_file:
            raise click.UsageError("--topic asks the broker; flags of a broker have no meaning with it")
        _show_topic(topic, as_json, target)
        return
    configuration = load_configuration(flags, environment=os.environ, file=config_file)
    for note in configuration.notes:
        print_note(f"note: {note}")
    values = asdict(configuration.settings)
    if as_json:
        print_json(
            {
                key: {
                    "value": value,
                    "origin": configuration.origins[key].kind,
                    "from": configuration.origins[key].name or None,
                    "help": EXPLANATIONS[key],
                }
                for key, value in values.items()
            }
        )
        return
    print_note("settings of a broker started here; `martlet config get` shows those of brokers that run")
    print_table(
        ["SETTING", "VALUE", "ORIGIN", "MEANING"],
        [[key, _text(value), str(configuration.origins[key]), EXPLANATIONS[key]] for key, value in values.items()],
    )


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) or '""'


def _show_topic(name: str, as_json: bool, target: Target) -> None:
    async def work(cluster: "Cluster") -> "list[ConfigEntry]":
        from martlet.client.admin import Admin, ResourceType

        return await Admin(cluster).configs(ResourceType.TOPIC, name)

    print_entries(run_with_cluster(target, work), Owner(topic=name), as_json=as_json)

"""docs/settings.md says of every setting of topics, brokers and groups what the code's tables say of it."""

import re
from collections.abc import Mapping

import pytest

from martlet.configs.definition import ConfigDef, Effect
from martlet.configs.effective import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from martlet.configs.kafka_start_settings import START_SETTINGS
from tests.tidy.source_tree import ROOT

TABLES = {"Topics": TOPIC_CONFIGS, "Brokers": BROKER_CONFIGS, "Groups": GROUP_CONFIGS}


def section(title: str) -> str:
    """The text under one heading of the page."""
    text = (ROOT / "docs/settings.md").read_text("utf-8")
    _, found, rest = text.partition(f"\n## {title}\n")
    assert found, title
    return rest.partition("\n## ")[0]


def row(definition: ConfigDef) -> str:
    """The line of the page that tells about a setting."""
    names = [f"`{inherited.name}`" for inherited in definition.inherits if inherited.name != definition.name]
    also = f" (broker: {', '.join(names)})" if names else ""
    default = "not set" if definition.default is None else f"`{definition.default}`" if definition.default else "empty"
    effect = "fixed at start" if definition.read_only else str(definition.effect)
    return f"| `{definition.name}`{also} | {default} | {effect} | {definition.doc} |"


@pytest.mark.parametrize(("title", "table"), TABLES.items())
def test_the_page_and_the_tables_say_the_same(title: str, table: Mapping[str, ConfigDef]) -> None:
    listed = [line for line in section(title).splitlines() if line.startswith("| `")]
    assert listed == [row(definition) for definition in table.values()]


def test_the_page_names_what_only_kafka_has() -> None:
    assert set(re.findall(r"`([a-z0-9.]+)`", section("Fixed at start in Kafka, and not in Martlet"))) == START_SETTINGS
    assert START_SETTINGS.isdisjoint(BROKER_CONFIGS)


def test_every_effect_is_explained() -> None:
    text = (ROOT / "docs/settings.md").read_text("utf-8").partition("\n## ")[0]
    for word in (*Effect, "fixed at start"):
        assert f"**{word}**" in text

"""Topics as definitions that can be kept in a file: what there is, what a file wants, and the steps between them.

Rules: an import makes the topics of a file and changes those that exist; it deletes nothing, and leaves every topic
alone that the file does not name. A setting that the file does not name goes back to its default. What cannot be done,
fewer partitions or another number of replicas, is said and stops nothing else.

Proved by: tests/unit/client/test_topic_definitions.py, tests/cli/test_topic_definitions_end_to_end.py
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from martlet.client.admin import Admin, ConfigSource, NewTopic, ResourceType
from martlet.client.errors import TopicMissing

_FIELDS: Final = ("name", "partitions", "replicas", "configs")


@dataclass(frozen=True, slots=True)
class TopicDefinition:
    """What a topic is made of; the settings are those that differ from the defaults."""

    name: str
    partitions: int
    replicas: int
    configs: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "partitions": self.partitions,
            "replicas": self.replicas,
            "configs": dict(sorted(self.configs.items())),
        }


def read_definitions(document: object) -> list[TopicDefinition]:
    """The definitions of a parsed file; ValueError naming what is wrong and what is allowed."""
    topics = document.get("topics") if isinstance(document, dict) else None
    if not isinstance(topics, list):
        raise ValueError('a definition file is a JSON object with a list of "topics"')
    definitions = [_read_definition(number, topic) for number, topic in enumerate(topics, 1)]
    names = [definition.name for definition in definitions]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"topic {twice!r} is defined twice")
    return definitions


def _read_definition(number: int, topic: object) -> TopicDefinition:
    if not isinstance(topic, dict) or not isinstance(topic.get("name"), str) or not topic["name"]:
        raise ValueError(f'topic {number} of the file has no "name"')
    where = f"topic {topic['name']!r}"
    if unknown := sorted(set(topic) - set(_FIELDS)):
        raise ValueError(f"{where} has an unknown field {unknown[0]!r}; allowed are {', '.join(_FIELDS)}")
    for key in ("partitions", "replicas"):
        count = topic.get(key)
        if not isinstance(count, int) or isinstance(count, bool) or count < 1:
            raise ValueError(f'{where}: "{key}" is a whole number from 1 up, not {count!r}')
    configs = topic.get("configs", {})
    if not isinstance(configs, dict) or not all(isinstance(value, str) for value in configs.values()):
        raise ValueError(f'{where}: "configs" is an object of strings, like {{"retention.ms": "3600000"}}')
    return TopicDefinition(topic["name"], topic["partitions"], topic["replicas"], configs)


@dataclass(frozen=True, slots=True)
class TopicChange:
    """What an import does with one topic; nothing at all where `is_needed` is false."""

    wanted: TopicDefinition
    present: TopicDefinition | None

    @property
    def is_new(self) -> bool:
        return self.present is None

    @property
    def grows_from(self) -> int | None:
        """The number of partitions it has, if it gets more."""
        if self.present is None or self.wanted.partitions <= self.present.partitions:
            return None
        return self.present.partitions

    @property
    def set_values(self) -> dict[str, str]:
        before = self.present.configs if self.present is not None else {}
        return {key: value for key, value in sorted(self.wanted.configs.items()) if before.get(key) != value}

    @property
    def unset(self) -> list[str]:
        return sorted(set(self.present.configs) - set(self.wanted.configs)) if self.present is not None else []

    @property
    def is_needed(self) -> bool:
        return self.is_new or self.grows_from is not None or bool(self.set_values or self.unset)

    @property
    def obstacles(self) -> list[str]:
        """What the file wants and an import does not do."""
        if self.present is None:
            return []
        found = []
        if self.wanted.partitions < self.present.partitions:
            found.append(
                f"{self.wanted.name} has {self.present.partitions} partitions, which never become fewer; "
                f"the file wants {self.wanted.partitions}"
            )
        if self.wanted.replicas != self.present.replicas:
            found.append(
                f"{self.wanted.name} has {self.present.replicas} replicas, the file wants {self.wanted.replicas}: "
                f"`martlet partition move {self.wanted.name} --replication {self.wanted.replicas}` changes that"
            )
        return found

    def describe(self) -> list[str]:
        """One line per difference, as a diff."""
        name = self.wanted.name
        lines = []
        if self.is_new:
            lines.append(f"+ {name}: {self.wanted.partitions} partitions, {self.wanted.replicas} replicas")
        elif self.grows_from is not None:
            lines.append(f"~ {name}: partitions {self.grows_from} -> {self.wanted.partitions}")
        before = self.present.configs if self.present is not None else {}
        for key, value in self.set_values.items():
            lines.append(f"~ {name}: {key} {before[key]} -> {value}" if key in before else f"+ {name}: {key} = {value}")
        lines += [f"- {name}: {key} = {before[key]}" for key in self.unset]
        return lines

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.wanted.name,
            "create": self.is_new,
            "partitions_before": self.present.partitions if self.present is not None else None,
            "partitions": self.wanted.partitions,
            "set": self.set_values,
            "unset": self.unset,
            "obstacles": self.obstacles,
        }


def plan_import(wanted: Iterable[TopicDefinition], present: Mapping[str, TopicDefinition]) -> list[TopicChange]:
    return [TopicChange(definition, present.get(definition.name)) for definition in wanted]


async def present_definitions(admin: Admin, names: Collection[str] | None = None) -> dict[str, TopicDefinition]:
    """The topics that there are, or those of the names that there are; never those Martlet keeps for itself."""
    found = {}
    for name, info in (await admin.topics()).items():
        if info.is_internal or (names is not None and name not in names):
            continue
        entries = await admin.configs(ResourceType.TOPIC, name)
        found[name] = TopicDefinition(
            name=name,
            partitions=len(info.partitions),
            replicas=max(len(partition.replicas) for partition in info.partitions.values()),
            configs={one.name: one.value or "" for one in entries if one.source is ConfigSource.TOPIC},
        )
    return found


async def export_definitions(admin: Admin, names: Collection[str]) -> list[TopicDefinition]:
    """The named topics, or all when none is named; TopicMissing for one that does not exist."""
    found = await present_definitions(admin, names or None)
    for name in names:
        if name not in found:
            raise TopicMissing(name)
    return [found[name] for name in sorted(found)]


async def carry_out(admin: Admin, change: TopicChange) -> None:
    """Make one topic like its definition."""
    wanted = change.wanted
    if change.is_new:
        await admin.create_topic(
            NewTopic(
                name=wanted.name,
                partitions=wanted.partitions,
                replication_factor=wanted.replicas,
                configs=wanted.configs,
            )
        )
        return
    if change.set_values or change.unset:
        await admin.alter_configs(ResourceType.TOPIC, wanted.name, set_values=change.set_values, unset=change.unset)
    if change.grows_from is not None:
        await admin.grow_topic(wanted.name, partitions=wanted.partitions)

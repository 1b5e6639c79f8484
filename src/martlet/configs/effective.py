"""Which value is in force: what a topic, a broker or a group sets itself, what it inherits, and the default.

Rules: pure lookups over the tables; changing settings is in `changes.py`. A broker's settings come in three layers,
later ones losing: changed at run time for this broker, changed at run time for the whole cluster, given at start. A
topic's setting is the topic's own, else the first of the broker's names for it that any layer sets, else the default;
so is a group's. The synonyms shown are Kafka's: of the names at the broker the first one and those after it, and so
none at all while only an older name, such as `log.retention.hours`, gives the value.

Invariant: CFG-1 every value handed out was read by its definition without complaint: a stored value that this version
refuses (another version wrote it) counts as not set.
Proved by: tests/unit/configs/test_effective.py
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import dropwhile
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.invariant import invariant
from martlet.configs.definition import (
    ConfigDef,
    ConfigSource,
    ConfigType,
    Inherited,
    Value,
)
from martlet.configs.tables import BROKER_CONFIGS, FLUSH_MODES, GROUP_CONFIGS, TOPIC_CONFIGS

__all__ = [
    "BROKER_CONFIGS",
    "FLUSH_MODES",
    "GROUP_CONFIGS",
    "NO_LAYERS",
    "TOPIC_CONFIGS",
    "BrokerLayers",
    "ConfigDef",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "EffectiveConfig",
    "Value",
    "effective_broker_config",
    "effective_group_config",
    "effective_topic_config",
    "parse_topic_config",
]


@dataclass(frozen=True, slots=True)
class BrokerLayers:
    """A broker's settings by Kafka's names, as text."""

    dynamic_broker: Mapping[str, str] = field(default_factory=dict)
    """Changed at run time for this broker."""
    dynamic_default: Mapping[str, str] = field(default_factory=dict)
    """Changed at run time for every broker."""
    static: Mapping[str, str] = field(default_factory=dict)
    """Given when the broker was started; a value equal to the default counts as the default."""

    def values_of(self, definition: ConfigDef) -> Iterator[tuple[str, ConfigSource]]:
        """Every value set for the name, strongest first."""
        name = definition.name
        if name in self.dynamic_broker:
            yield self.dynamic_broker[name], ConfigSource.DYNAMIC_BROKER
        if name in self.dynamic_default:
            yield self.dynamic_default[name], ConfigSource.DYNAMIC_DEFAULT_BROKER
        if name in self.static and self.static[name] != definition.default:
            yield self.static[name], ConfigSource.STATIC_BROKER


NO_LAYERS: Final = BrokerLayers()


class _Scope(NamedTuple):
    """One kind of thing that has configurations."""

    table: Mapping[str, ConfigDef]
    defaults: Mapping[str, Value]
    source: ConfigSource
    """What is said of a value that the thing sets itself; a broker's come in layers that say it."""


def _scope(table: Mapping[str, ConfigDef], source: ConfigSource) -> _Scope:
    return _Scope(table, {name: definition.read(definition.default) for name, definition in table.items()}, source)


_TOPICS: Final = _scope(TOPIC_CONFIGS, ConfigSource.TOPIC)
_BROKERS: Final = _scope(BROKER_CONFIGS, ConfigSource.UNKNOWN)
_GROUPS: Final = _scope(GROUP_CONFIGS, ConfigSource.GROUP)


class ConfigSynonym(NamedTuple):
    """One place that sets the value, or would if those before it did not."""

    name: str
    value: str | None
    source: ConfigSource


class ConfigEntry(NamedTuple):
    """One configuration as DescribeConfigs shows it; a sensitive value is not in it."""

    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    is_sensitive: bool
    synonyms: tuple[ConfigSynonym, ...]
    type: ConfigType
    documentation: str

    @property
    def is_default(self) -> bool:
        return self.source is ConfigSource.DEFAULT


class _Candidate(NamedTuple):
    """A synonym with its value in the units of the configuration asked for."""

    synonym: ConfigSynonym
    value: str | None


class EffectiveConfig:
    """The values in force for one topic, broker or group; a cheap view that computes what is asked of it."""

    __slots__ = ("_layers", "_overrides", "_scope", "_table")

    def __init__(self, scope: _Scope, overrides: Mapping[str, str], layers: BrokerLayers) -> None:
        self._scope = scope
        self._table = scope.table
        self._overrides = overrides
        self._layers = layers

    def value(self, name: str) -> Value:
        """The typed value."""
        definition = self._table[name]
        strongest = next(self._chain(definition))
        if strongest.synonym.source is ConfigSource.DEFAULT:
            return self._scope.defaults[name]
        return definition.read(strongest.value)

    def number(self, name: str) -> int:
        """The value of a whole-number configuration."""
        value = self.value(name)
        invariant(isinstance(value, int), f"{name} is a whole number")
        return int(value)  # type: ignore[arg-type]

    def real(self, name: str) -> float:
        value = self.value(name)
        invariant(isinstance(value, float), f"{name} is a number")
        return float(value)  # type: ignore[arg-type]

    def flag(self, name: str) -> bool:
        value = self.value(name)
        invariant(isinstance(value, bool), f"{name} is true or false")
        return bool(value)

    def text(self, name: str) -> str:
        value = self.value(name)
        invariant(isinstance(value, str), f"{name} is text")
        return str(value)

    def words(self, name: str) -> tuple[str, ...]:
        """The value of a list configuration."""
        value = self.value(name)
        return value if isinstance(value, tuple) else ()

    def entry(self, name: str) -> ConfigEntry:
        """Everything DescribeConfigs tells about one configuration."""
        definition = self._table[name]
        chain = tuple(self._chain(definition))
        winner = chain[0]
        synonyms = self._shown_synonyms(definition, chain)
        if definition.sensitive:
            synonyms = tuple(each._replace(value=None) for each in synonyms)
        return ConfigEntry(
            name=name,
            value=None if definition.sensitive else winner.value,
            source=winner.synonym.source,
            read_only=definition.read_only,
            is_sensitive=definition.sensitive,
            synonyms=synonyms,
            type=definition.type,
            documentation=definition.doc,
        )

    def entries(self, names: Collection[str] | None = None) -> list[ConfigEntry]:
        """All entries by name, or those asked for; names that do not exist are left out, as Kafka does."""
        chosen = self._table if names is None else [name for name in self._table if name in set(names)]
        found = (self.entry(name) for name in chosen)
        known = [entry for entry in found if entry.value is not None or not self._table[entry.name].only_when_set]
        return [*known, *(entry for entry in self._unknown_entries() if names is None or entry.name in names)]

    def _unknown_entries(self) -> Iterator[ConfigEntry]:
        """What was set at a broker under names that are not in the table: without the value, which may be a secret."""
        if self._table is not BROKER_CONFIGS:
            return
        layers = (
            (self._layers.dynamic_broker, ConfigSource.DYNAMIC_BROKER),
            (self._layers.dynamic_default, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        )
        found = [(name, source) for layer, source in layers for name in sorted(layer.keys() - self._table.keys())]
        for name in dict.fromkeys(name for name, _ in found):
            synonyms = tuple(ConfigSynonym(name, None, source) for each, source in found if each == name)
            yield ConfigEntry(name, None, synonyms[0].source, True, True, synonyms, ConfigType.UNKNOWN, "")

    def _shown_synonyms(self, definition: ConfigDef, chain: tuple[_Candidate, ...]) -> tuple[ConfigSynonym, ...]:
        """Those from the first name at the broker on; a topic's setting that the broker has no name for has none."""
        shown = [each.synonym for each in chain if each.synonym.value is not None]
        own = shown[:1] if chain[0].synonym.source is self._scope.source else []
        if not definition.inherits and self._table is TOPIC_CONFIGS:
            return tuple(own)
        first = definition.inherits[0].name if definition.inherits else definition.name
        return (*own, *dropwhile(lambda each: each.name != first, shown[len(own) :]))

    def _chain(self, definition: ConfigDef) -> Iterator[_Candidate]:
        """What sets this value, strongest first, down to the default, which is always there."""
        own = self._overrides.get(definition.name)
        if own is not None and _is_readable(definition, own):
            yield _Candidate(ConfigSynonym(definition.name, own, self._scope.source), own)
        if self._table is BROKER_CONFIGS:
            yield from self._layered(definition, Inherited(definition.name))
        for inherited in definition.inherits:
            yield from self._layered(definition, inherited)
        yield _Candidate(_default_synonym(definition), definition.default)

    def _layered(self, definition: ConfigDef, inherited: Inherited) -> Iterator[_Candidate]:
        broker_definition = BROKER_CONFIGS[inherited.name]
        for text, source in self._layers.values_of(broker_definition):
            if _is_readable(broker_definition, text):
                value = text if inherited.factor == 1 else _in_finer_units(broker_definition, text, inherited.factor)
                if _is_readable(definition, value):
                    yield _Candidate(ConfigSynonym(broker_definition.name, text, source), value)


def effective_topic_config(overrides: Mapping[str, str], layers: BrokerLayers = NO_LAYERS) -> EffectiveConfig:
    """The settings of a topic that sets `overrides` itself, on a broker with these layers."""
    return EffectiveConfig(_TOPICS, overrides, layers)


def effective_broker_config(layers: BrokerLayers) -> EffectiveConfig:
    """The settings of a broker."""
    return EffectiveConfig(_BROKERS, {}, layers)


def effective_group_config(overrides: Mapping[str, str], layers: BrokerLayers = NO_LAYERS) -> EffectiveConfig:
    """The settings of a group that sets `overrides` itself, on a broker with these layers."""
    return EffectiveConfig(_GROUPS, overrides, layers)


def parse_topic_config(name: str, text: str) -> Value:
    """The typed value of one topic configuration; raises INVALID_CONFIG saying what is allowed."""
    definition = TOPIC_CONFIGS.get(name)
    if definition is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no topic configuration named {name[:80]!r}")
    return definition.read(text)


def _default_synonym(definition: ConfigDef) -> ConfigSynonym:
    """The default under the name that carries it at the broker, if there is one."""
    for inherited in definition.inherits:
        default = BROKER_CONFIGS[inherited.name].default
        if default is not None:
            return ConfigSynonym(inherited.name, default, ConfigSource.DEFAULT)
    return ConfigSynonym(definition.name, definition.default, ConfigSource.DEFAULT)


def _is_readable(definition: ConfigDef, text: str) -> bool:
    try:
        definition.read(text)
    except ApiError:
        return False
    return True


def _in_finer_units(definition: ConfigDef, text: str, factor: int) -> str:
    """A negative number means "no limit" in every unit."""
    value = definition.read(text)
    invariant(isinstance(value, int), f"{definition.name} is a whole number")
    number = int(value)  # type: ignore[arg-type]
    return str(number * factor if number >= 0 else number)

"""How settings are changed: pure functions from the settings stored and a client's wishes to the settings to store.

Rules: nothing is stored that its definition refuses, and everything refused names the configuration and what is
allowed. The functions return new dictionaries and change nothing.

Proved by: tests/unit/cluster/test_config_changes.py
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.cluster.config_definition import ConfigDef, ConfigType
from martlet.cluster.configs import (
    BROKER_CONFIGS,
    NO_LAYERS,
    TOPIC_CONFIGS,
    BrokerLayers,
    effective_broker_config,
    effective_topic_config,
)


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs can do to one configuration; the numbers are the protocol's."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One wish of an IncrementalAlterConfigs request, as it came."""

    name: str
    operation: int
    value: str | None


def alter_topic_configs(
    overrides: Mapping[str, str], changes: Sequence[ConfigChange], layers: BrokerLayers = NO_LAYERS
) -> dict[str, str]:
    """A topic's settings after the changes; raises ApiError and changes nothing when one of them is refused."""
    inherited = effective_topic_config({}, layers)
    altered = dict(overrides)
    for change in _each_once(changes):
        definition = _definition(TOPIC_CONFIGS, "topic", change.name)
        current = altered.get(change.name, inherited.entry(change.name).value)
        _alter(altered, definition, change, current)
    _check_together(altered, layers)
    return altered


def alter_broker_configs(
    stored: Mapping[str, str], changes: Sequence[ConfigChange], layers: BrokerLayers = NO_LAYERS
) -> dict[str, str]:
    """A broker's (or the cluster's default) run-time settings after the changes."""
    inherited = effective_broker_config(layers)
    altered = dict(stored)
    for change in _each_once(changes):
        definition = _changeable(change.name)
        current = altered.get(change.name, inherited.entry(change.name).value)
        _alter(altered, definition, change, current)
    return altered


def replace_topic_configs(configs: Mapping[str, str | None], layers: BrokerLayers = NO_LAYERS) -> dict[str, str]:
    """The settings of a new topic, or of one whose settings are replaced as a whole (AlterConfigs)."""
    replaced = {
        name: _checked(_definition(TOPIC_CONFIGS, "topic", name), value, ErrorCode.INVALID_CONFIG)
        for name, value in configs.items()
    }
    _check_together(replaced, layers)
    return replaced


def replace_broker_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """A broker's (or the cluster's default) run-time settings, replaced as a whole (AlterConfigs)."""
    return {name: _checked(_changeable(name), value, ErrorCode.INVALID_CONFIG) for name, value in configs.items()}


def _each_once(changes: Sequence[ConfigChange]) -> Sequence[ConfigChange]:
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a configuration may be named only once in a request")
    return changes


def _definition(table: Mapping[str, ConfigDef], scope: str, name: str) -> ConfigDef:
    definition = table.get(name)
    if definition is None:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no {scope} configuration named {name[:80]!r}")
    return definition


def _changeable(name: str) -> ConfigDef:
    definition = _definition(BROKER_CONFIGS, "broker", name)
    if definition.read_only:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
    return definition


def _checked(definition: ConfigDef, text: str | None, when_missing: ErrorCode) -> str:
    if text is None:
        raise ApiError(when_missing, f"{definition.name} needs a value; to go back to the default, delete it")
    definition.read(text)
    return text if definition.type is ConfigType.PASSWORD else text.strip()


def _alter(altered: dict[str, str], definition: ConfigDef, change: ConfigChange, current: str | None) -> None:
    name = definition.name
    if change.operation == ConfigOperation.DELETE:
        altered.pop(name, None)
        return
    value = _checked_element(definition, change)
    if change.operation == ConfigOperation.SET:
        altered[name] = value
        return
    words = [word.strip() for word in (current or "").split(",") if word.strip()]
    wished = [word.strip() for word in value.split(",") if word.strip()]
    if change.operation == ConfigOperation.APPEND:
        words.extend(word for word in dict.fromkeys(wished) if word not in words)
    else:
        words = [word for word in words if word not in wished]
    altered[name] = _checked(definition, ",".join(words), ErrorCode.INVALID_REQUEST)


def _checked_element(definition: ConfigDef, change: ConfigChange) -> str:
    """The value of a SET as it may be stored, or that of an APPEND or SUBTRACT, which is checked once applied."""
    if change.operation == ConfigOperation.SET:
        return _checked(definition, change.value, ErrorCode.INVALID_REQUEST)
    if change.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"there is no configuration operation {change.operation}")
    if definition.type is not ConfigType.LIST:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{definition.name} is not a list: it can be set but not appended to")
    if change.value is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{definition.name} needs a value to append or subtract")
    return change.value


def _check_together(overrides: Mapping[str, str], layers: BrokerLayers) -> None:
    """Rules that span several configurations, looked at only when the topic sets one of them."""
    if overrides.keys().isdisjoint(("min.compaction.lag.ms", "max.compaction.lag.ms")):
        return
    config = effective_topic_config(overrides, layers)
    shortest, longest = config.number("min.compaction.lag.ms"), config.number("max.compaction.lag.ms")
    if shortest > longest:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({shortest}) must not be above max.compaction.lag.ms ({longest})",
        )

"""How settings are changed: pure functions from the settings stored and a client's wishes to the settings to store.

Rules: nothing is stored that its definition refuses, and everything refused names the configuration and what is
allowed. The functions return new dictionaries and change nothing.

As in Kafka, taking back what is not set succeeds, whatever its name: a tool that cleans up after itself names all that
it may have set, and what an older version took must go. Setting an unknown name is refused for topics and groups; at a
broker, where Kafka's plugins have names of their own, it is stored and has no effect.

Proved by: tests/unit/configs/test_changes.py
"""

import difflib
from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.configs.definition import ConfigDef, ConfigType
from martlet.configs.effective import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    NO_LAYERS,
    TOPIC_CONFIGS,
    BrokerLayers,
    EffectiveConfig,
    effective_broker_config,
    effective_group_config,
    effective_topic_config,
)
from martlet.configs.group_rows import limit_names
from martlet.configs.kafka_start_settings import START_SETTINGS

_OWN_PREFIX: Final = "martlet."
_LISTENER_PREFIX: Final = "listener.name."

_UNKNOWN_NAMES_MAX: Final = 100
_UNKNOWN_LENGTH_MAX: Final = 4_096
"""Of a name and its value that are kept unread."""


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
    altered = _altered(TOPIC_CONFIGS, "topic", overrides, changes, effective_topic_config({}, layers))
    _check_together(altered, layers)
    return altered


def alter_group_configs(
    overrides: Mapping[str, str], changes: Sequence[ConfigChange], layers: BrokerLayers = NO_LAYERS
) -> dict[str, str]:
    """A group's settings after the changes."""
    altered = _altered(GROUP_CONFIGS, "group", overrides, changes, effective_group_config({}, layers))
    _check_limits(altered, layers)
    return altered


def alter_broker_configs(
    stored: Mapping[str, str], changes: Sequence[ConfigChange], layers: BrokerLayers = NO_LAYERS
) -> dict[str, str]:
    """A broker's (or the cluster's default) run-time settings after the changes."""
    inherited = effective_broker_config(layers)
    altered = dict(stored)
    for change in _each_once(changes):
        name = change.name
        if change.operation == ConfigOperation.DELETE:
            altered.pop(name, None)
        elif change.operation == ConfigOperation.SET and _is_unknown(name):
            altered[name] = _unread(name, change.value, ErrorCode.INVALID_REQUEST)
        else:
            definition = _changeable(name)
            _alter(altered, definition, change, altered.get(name, inherited.entry(name).value))
    _check_unknown_count(altered)
    return altered


def replace_topic_configs(configs: Mapping[str, str | None], layers: BrokerLayers = NO_LAYERS) -> dict[str, str]:
    """The settings of a new topic, or of one whose settings are replaced as a whole (AlterConfigs)."""
    replaced = _replaced(TOPIC_CONFIGS, "topic", configs)
    _check_together(replaced, layers)
    return replaced


def replace_group_configs(configs: Mapping[str, str | None], layers: BrokerLayers = NO_LAYERS) -> dict[str, str]:
    """A group's settings, replaced as a whole (AlterConfigs)."""
    replaced = _replaced(GROUP_CONFIGS, "group", configs)
    _check_limits(replaced, layers)
    return replaced


def replace_broker_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """A broker's (or the cluster's default) run-time settings, replaced as a whole (AlterConfigs)."""
    replaced = {
        name: _unread(name, value, ErrorCode.INVALID_CONFIG)
        if _is_unknown(name)
        else _checked(_changeable(name), value, ErrorCode.INVALID_CONFIG)
        for name, value in configs.items()
    }
    _check_unknown_count(replaced)
    return replaced


def unknown_broker_names(configs: Mapping[str, str]) -> list[str]:
    """Which of a broker's stored settings have no effect because their names say nothing here."""
    return [name for name in configs if name not in BROKER_CONFIGS]


def _altered(
    table: Mapping[str, ConfigDef],
    scope: str,
    overrides: Mapping[str, str],
    changes: Sequence[ConfigChange],
    inherited: EffectiveConfig,
) -> dict[str, str]:
    altered = dict(overrides)
    for change in _each_once(changes):
        name = change.name
        if change.operation == ConfigOperation.DELETE:
            altered.pop(name, None)
        else:
            definition = _definition(table, scope, name)
            _alter(altered, definition, change, altered.get(name, inherited.entry(name).value))
    return altered


def _replaced(table: Mapping[str, ConfigDef], scope: str, configs: Mapping[str, str | None]) -> dict[str, str]:
    return {
        name: _checked(_definition(table, scope, name), value, ErrorCode.INVALID_CONFIG)
        for name, value in configs.items()
    }


def _each_once(changes: Sequence[ConfigChange]) -> Sequence[ConfigChange]:
    names = [change.name for change in changes]
    if len(set(names)) != len(names):
        raise ApiError(ErrorCode.INVALID_REQUEST, "a configuration may be named only once in a request")
    return changes


def _definition(table: Mapping[str, ConfigDef], scope: str, name: str) -> ConfigDef:
    definition = table.get(name)
    if definition is None:
        close = difflib.get_close_matches(name[:80], table, n=1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no {scope} configuration named {name[:80]!r}{meant}")
    return definition


def _is_unknown(name: str) -> bool:
    """Whether neither Martlet nor Kafka has such a setting of a broker."""
    return (
        name not in BROKER_CONFIGS
        and name not in START_SETTINGS
        and not name.startswith((_OWN_PREFIX, _LISTENER_PREFIX))
    )


def _changeable(name: str) -> ConfigDef:
    if name.startswith(_LISTENER_PREFIX):
        raise ApiError(
            ErrorCode.INVALID_CONFIG, f"{name[:80]!r} is for one listener; listeners have no settings of their own"
        )
    if name in START_SETTINGS:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
    definition = _definition(BROKER_CONFIGS, "broker", name)
    if definition.read_only:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name} cannot be changed while the broker runs")
    return definition


def _unread(name: str, text: str | None, when_missing: ErrorCode) -> str:
    """The value of an unknown setting of a broker, which is kept as it came."""
    if text is None:
        raise ApiError(when_missing, f"{name[:80]!r} needs a value; to take it back, delete it")
    if len(name) + len(text) > _UNKNOWN_LENGTH_MAX:
        raise ApiError(
            ErrorCode.INVALID_CONFIG,
            f"there is no broker configuration named {name[:80]!r}; unknown ones are kept up to"
            f" {_UNKNOWN_LENGTH_MAX} characters",
        )
    return text


def _check_unknown_count(configs: Mapping[str, str]) -> None:
    if len(unknown_broker_names(configs)) > _UNKNOWN_NAMES_MAX:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"more than {_UNKNOWN_NAMES_MAX} unknown configurations of a broker")


def _checked(definition: ConfigDef, text: str | None, when_missing: ErrorCode) -> str:
    if text is None:
        raise ApiError(when_missing, f"{definition.name} needs a value; to go back to the default, delete it")
    definition.read(text)
    return text if definition.type is ConfigType.PASSWORD else text.strip()


def _alter(altered: dict[str, str], definition: ConfigDef, change: ConfigChange, current: str | None) -> None:
    name = definition.name
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


_GROUP_KINDS: Final = ("consumer", "share", "streams")


def _check_limits(overrides: Mapping[str, str], layers: BrokerLayers) -> None:
    """What a broker allows groups to set, and that a session outlasts the heartbeats that keep it alive."""
    if not overrides:
        return
    config, broker = effective_group_config(overrides, layers), effective_broker_config(layers)
    for name in overrides:
        least, greatest = limit_names(name)
        if least in BROKER_CONFIGS and config.number(name) < broker.number(least):
            raise ApiError(ErrorCode.INVALID_CONFIG, f"{name} must be at least {broker.number(least)}, see {least}")
        if greatest in BROKER_CONFIGS and config.number(name) > broker.number(greatest):
            raise ApiError(
                ErrorCode.INVALID_CONFIG, f"{name} must be at most {broker.number(greatest)}, see {greatest}"
            )
    for kind in _GROUP_KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        if not overrides.keys().isdisjoint((session, heartbeat)) and config.number(session) <= config.number(heartbeat):
            raise ApiError(
                ErrorCode.INVALID_CONFIG,
                f"{session} ({config.number(session)}) must be above {heartbeat} ({config.number(heartbeat)})",
            )

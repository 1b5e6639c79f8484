"""Changing settings: what is stored afterwards, and what is refused."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.cluster.config_changes import (
    ConfigChange,
    ConfigOperation,
    alter_broker_configs,
    alter_topic_configs,
    replace_broker_configs,
    replace_topic_configs,
)
from martlet.cluster.configs import BrokerLayers

_SET, _DELETE = ConfigOperation.SET, ConfigOperation.DELETE
_APPEND, _SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def test_set_and_delete_change_only_what_they_name() -> None:
    stored = {"retention.ms": "5", "segment.ms": "7"}
    changes = [ConfigChange("retention.ms", _SET, " 6 "), ConfigChange("segment.ms", _DELETE, None)]
    assert alter_topic_configs(stored, changes) == {"retention.ms": "6"}
    assert stored == {"retention.ms": "5", "segment.ms": "7"}


def test_deleting_what_is_not_set_changes_nothing() -> None:
    assert alter_topic_configs({}, [ConfigChange("retention.ms", _DELETE, None)]) == {}


@pytest.mark.parametrize(
    ("stored", "operation", "value", "result"),
    [
        ({}, _APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, _APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, _APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, _SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": "compact"}, _SUBTRACT, "delete", "compact"),
    ],
)
def test_lists_can_be_appended_to_and_subtracted_from(
    stored: dict[str, str], operation: int, value: str, result: str
) -> None:
    change = ConfigChange("cleanup.policy", operation, value)
    assert alter_topic_configs(stored, [change]) == {"cleanup.policy": result}


def test_appending_to_a_list_that_is_not_set_starts_from_the_brokers_value() -> None:
    layers = BrokerLayers(dynamic_default={"log.cleanup.policy": "compact"})
    change = ConfigChange("cleanup.policy", _APPEND, "delete")
    assert alter_topic_configs({}, [change], layers) == {"cleanup.policy": "compact,delete"}


@pytest.mark.parametrize(
    ("change", "code", "sentence"),
    [
        (ConfigChange("no.such", _SET, "1"), ErrorCode.INVALID_CONFIG, "no topic configuration"),
        (ConfigChange("no.such", _DELETE, None), ErrorCode.INVALID_CONFIG, "no topic configuration"),
        (ConfigChange("retention.ms", _SET, "soon"), ErrorCode.INVALID_CONFIG, "whole number"),
        (ConfigChange("retention.ms", _SET, None), ErrorCode.INVALID_REQUEST, "needs a value"),
        (ConfigChange("retention.ms", _APPEND, "1"), ErrorCode.INVALID_CONFIG, "not a list"),
        (ConfigChange("cleanup.policy", _APPEND, None), ErrorCode.INVALID_REQUEST, "needs a value"),
        (ConfigChange("cleanup.policy", _APPEND, "shred"), ErrorCode.INVALID_CONFIG, "at least one of"),
        (ConfigChange("cleanup.policy", _SUBTRACT, "delete"), ErrorCode.INVALID_CONFIG, "at least one of"),
        (ConfigChange("cleanup.policy", 9, "delete"), ErrorCode.INVALID_REQUEST, "no configuration operation 9"),
    ],
)
def test_a_refused_change_says_why(change: ConfigChange, code: ErrorCode, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence) as caught:
        alter_topic_configs({}, [change])
    assert caught.value.code is code


def test_a_configuration_named_twice_is_refused() -> None:
    changes = [ConfigChange("retention.ms", _SET, "1"), ConfigChange("retention.ms", _DELETE, None)]
    with pytest.raises(ApiError, match="only once"):
        alter_topic_configs({}, changes)


def test_the_shortest_compaction_lag_may_not_exceed_the_longest() -> None:
    with pytest.raises(ApiError, match=r"min\.compaction\.lag\.ms \(9\)"):
        replace_topic_configs({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"})
    layers = BrokerLayers(dynamic_default={"log.cleaner.max.compaction.lag.ms": "5"})
    with pytest.raises(ApiError, match="must not be above"):
        alter_topic_configs({}, [ConfigChange("min.compaction.lag.ms", _SET, "6")], layers)


def test_replacing_keeps_exactly_what_is_given() -> None:
    assert replace_topic_configs({"segment.ms": "7"}) == {"segment.ms": "7"}
    assert replace_topic_configs({}) == {}
    with pytest.raises(ApiError) as caught:
        replace_topic_configs({"segment.ms": None})
    assert caught.value.code is ErrorCode.INVALID_CONFIG


def test_broker_settings_that_are_topic_defaults_can_be_changed_at_run_time() -> None:
    changes = [ConfigChange("log.retention.ms", _SET, "5"), ConfigChange("log.cleanup.policy", _APPEND, "compact")]
    assert alter_broker_configs({}, changes) == {"log.retention.ms": "5", "log.cleanup.policy": "delete,compact"}
    assert replace_broker_configs({"message.max.bytes": "9"}) == {"message.max.bytes": "9"}


@pytest.mark.parametrize("name", ["broker.id", "num.partitions", "log.retention.hours", "listeners"])
def test_what_a_broker_is_started_with_cannot_be_changed_at_run_time(name: str) -> None:
    with pytest.raises(ApiError, match="while the broker runs") as caught:
        alter_broker_configs({}, [ConfigChange(name, _SET, "1")])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError, match="while the broker runs"):
        replace_broker_configs({name: "1"})


def test_an_unknown_broker_setting_is_refused() -> None:
    with pytest.raises(ApiError, match=r"no broker configuration named 'retention\.ms'"):
        alter_broker_configs({}, [ConfigChange("retention.ms", _SET, "1")])

"""Changing settings: what is stored afterwards, and what is refused."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.configs.changes import (
    ConfigChange,
    ConfigOperation,
    alter_broker_configs,
    alter_group_configs,
    alter_topic_configs,
    replace_broker_configs,
    replace_group_configs,
    replace_topic_configs,
    unknown_broker_names,
)
from martlet.configs.effective import BrokerLayers

_SET, _DELETE = ConfigOperation.SET, ConfigOperation.DELETE
_APPEND, _SUBTRACT = ConfigOperation.APPEND, ConfigOperation.SUBTRACT


def test_set_and_delete_change_only_what_they_name() -> None:
    stored = {"retention.ms": "5", "segment.ms": "7"}
    changes = [ConfigChange("retention.ms", _SET, " 6 "), ConfigChange("segment.ms", _DELETE, None)]
    assert alter_topic_configs(stored, changes) == {"retention.ms": "6"}
    assert stored == {"retention.ms": "5", "segment.ms": "7"}


@pytest.mark.parametrize("name", ["retention.ms", "no.such.setting"])
def test_deleting_what_is_not_set_changes_nothing(name: str) -> None:
    change = ConfigChange(name, _DELETE, None)
    assert alter_topic_configs({}, [change]) == {}
    assert alter_group_configs({}, [change]) == {}
    assert alter_broker_configs({}, [change]) == {}


def test_a_setting_that_an_older_version_stored_can_be_taken_back() -> None:
    assert alter_topic_configs({"gone.since": "1"}, [ConfigChange("gone.since", _DELETE, None)]) == {}


@pytest.mark.parametrize(
    ("stored", "operation", "value", "result"),
    [
        ({}, _APPEND, "compact", "delete,compact"),
        ({"cleanup.policy": "compact"}, _APPEND, "delete", "compact,delete"),
        ({"cleanup.policy": "compact"}, _APPEND, "compact", "compact"),
        ({"cleanup.policy": "compact,delete"}, _SUBTRACT, "compact", "delete"),
        ({"cleanup.policy": "compact"}, _SUBTRACT, "delete", "compact"),
        ({"cleanup.policy": "compact"}, _SUBTRACT, "compact", ""),
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
        (ConfigChange("no.such", _APPEND, "1"), ErrorCode.INVALID_CONFIG, "no topic configuration"),
        (ConfigChange("retention.ms", _SET, "soon"), ErrorCode.INVALID_CONFIG, "whole number"),
        (ConfigChange("retention.ms", _SET, None), ErrorCode.INVALID_REQUEST, "needs a value"),
        (ConfigChange("retention.ms", _APPEND, "1"), ErrorCode.INVALID_CONFIG, "not a list"),
        (ConfigChange("cleanup.policy", _APPEND, None), ErrorCode.INVALID_REQUEST, "needs a value"),
        (ConfigChange("cleanup.policy", _APPEND, "shred"), ErrorCode.INVALID_CONFIG, "a list of delete, compact"),
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


@pytest.mark.parametrize(
    "name", ["broker.id", "num.partitions", "log.retention.hours", "listeners", "controller.quorum.voters"]
)
def test_what_a_broker_is_started_with_cannot_be_changed_at_run_time(name: str) -> None:
    with pytest.raises(ApiError, match="while the broker runs") as caught:
        alter_broker_configs({}, [ConfigChange(name, _SET, "1")])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError, match="while the broker runs"):
        replace_broker_configs({name: "1"})


def test_the_throttles_that_kafkas_tools_take_back_together_are_all_known() -> None:
    rates = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
    names = [*rates, "replica.alter.log.dirs.io.max.bytes.per.second"]
    stored = alter_broker_configs({}, [ConfigChange(name, _SET, "1000") for name in names])
    assert stored == dict.fromkeys(names, "1000")
    assert alter_broker_configs(stored, [ConfigChange(name, _DELETE, "") for name in names]) == {}


def test_a_broker_keeps_what_it_does_not_know_as_kafka_does() -> None:
    stored = alter_broker_configs({}, [ConfigChange("plugin.key", _SET, " a ")])
    assert stored == {"plugin.key": " a "} == replace_broker_configs({"plugin.key": " a "})
    assert unknown_broker_names({**stored, "log.retention.ms": "1"}) == ["plugin.key"]
    assert alter_broker_configs(stored, [ConfigChange("plugin.key", _DELETE, None)]) == {}
    with pytest.raises(ApiError, match=r"no broker configuration named 'plugin\.key'"):
        alter_broker_configs(stored, [ConfigChange("plugin.key", _APPEND, "b")])


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("martlet.no.such", "1", "no broker configuration named"),
        ("listener.name.plaintext.max.connections", "1", "listeners have no settings of their own"),
        ("plugin.key", "x" * 5_000, "kept up to 4096 characters"),
        ("plugin.key", None, "needs a value"),
        ("ssl.keystore.location", "/keys", "TLS is set up when a broker starts"),
        ("sasl.jaas.config", "password", r"authentication is set up when a broker starts\), not \(hidden\)"),
        ("principal.builder.class", "a.B", "authentication is set up when a broker starts"),
        ("cordoned.log.dirs", "*", r"one log directory.*martlet\.drain"),
        ("max.connection.creation.rate", "5", "cannot limit how fast"),
        ("log.cleaner.io.max.bytes.per.second", "5", "cannot slow compaction down"),
    ],
)
def test_a_broker_refuses_what_it_would_silently_not_do(name: str, value: str | None, sentence: str) -> None:
    with pytest.raises(ApiError, match=sentence):
        alter_broker_configs({}, [ConfigChange(name, _SET, value)])
    with pytest.raises(ApiError, match=sentence):
        replace_broker_configs({name: value})


def test_a_broker_keeps_a_bounded_number_of_unknown_settings() -> None:
    changes = [ConfigChange(f"plugin.{number}", _SET, "x") for number in range(101)]
    assert len(alter_broker_configs({}, changes[:100])) == 100
    with pytest.raises(ApiError, match="more than 100 unknown"):
        alter_broker_configs({}, changes)
    with pytest.raises(ApiError, match="more than 100 unknown"):
        replace_broker_configs({change.name: "x" for change in changes})


def test_a_groups_times_stay_within_what_the_broker_allows() -> None:
    session, heartbeat = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    assert alter_group_configs({}, [ConfigChange(session, _SET, "50000")]) == {session: "50000"}
    assert replace_group_configs({heartbeat: "6000"}) == {heartbeat: "6000"}
    with pytest.raises(ApiError, match=r"at least 45000, see group\.consumer\.min\.session\.timeout\.ms"):
        alter_group_configs({}, [ConfigChange(session, _SET, "44999")])
    with pytest.raises(ApiError, match="at most 60000, see group"):
        replace_group_configs({session: "60001"})
    with pytest.raises(ApiError, match=r"at most 2, see group\.streams\.max\.standby\.replicas"):
        replace_group_configs({"streams.num.standby.replicas": "3"})
    low = BrokerLayers(static={"group.consumer.min.session.timeout.ms": "100"})
    assert alter_group_configs({}, [ConfigChange(session, _SET, "9000")], low) == {session: "9000"}
    with pytest.raises(ApiError, match=r"consumer\.session\.timeout\.ms \(4000\) must be above"):
        alter_group_configs({}, [ConfigChange(session, _SET, "4000")], low)
    with pytest.raises(ApiError, match=r"no group configuration named 'no\.such'") as caught:
        alter_group_configs({}, [ConfigChange("no.such", _SET, "1")])
    assert caught.value.code is ErrorCode.INVALID_CONFIG

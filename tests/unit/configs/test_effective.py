"""The configuration tables and which value is in force."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.configs.effective import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    BrokerLayers,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    effective_broker_config,
    effective_group_config,
    effective_topic_config,
    parse_topic_config,
)


def test_every_default_is_a_value_its_own_definition_accepts() -> None:
    for table in (TOPIC_CONFIGS, BROKER_CONFIGS, GROUP_CONFIGS):
        for name, definition in table.items():
            assert definition.name == name
            assert definition.doc.endswith("."), name
            definition.read(definition.default)


def test_every_config_inherits_from_broker_configs_that_exist() -> None:
    for definition in (*TOPIC_CONFIGS.values(), *GROUP_CONFIGS.values()):
        for inherited in definition.inherits:
            assert inherited.name in BROKER_CONFIGS


def test_the_topic_defaults_are_those_of_kafka() -> None:
    config = effective_topic_config({})
    assert config.number("retention.ms") == 604_800_000
    assert config.number("segment.bytes") == 1_073_741_824
    assert config.number("max.message.bytes") == 1_048_588
    assert config.words("cleanup.policy") == ("delete",)
    assert config.real("min.cleanable.dirty.ratio") == 0.5
    assert config.flag("unclean.leader.election.enable") is False
    assert config.text("message.timestamp.type") == "CreateTime"
    assert config.number("message.timestamp.before.max.ms") == 2**63 - 1
    assert config.words("leader.replication.throttled.replicas") == ()


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", "-1", -1),
        ("retention.ms", " 5 ", 5),
        ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("min.cleanable.dirty.ratio", "0.25", 0.25),
        ("unclean.leader.election.enable", "TRUE", True),
        ("martlet.flush", "commit", "commit"),
        ("compression.type", "producer", "producer"),
        ("cleanup.policy", "", ()),
        ("compression.type", "uncompressed", "uncompressed"),
        ("compression.gzip.level", "-1", -1),
        ("compression.zstd.level", "-131072", -131_072),
        ("local.retention.bytes", "-2", -2),
        ("message.downconversion.enable", "false", False),
        ("preallocate", "true", True),
        ("remote.storage.enable", "false", False),
        ("remote.log.copy.disable", "true", True),
        ("segment.jitter.ms", "5", 5),
        ("leader.replication.throttled.replicas", "0:1,1:2", ("0:1", "1:2")),
        ("follower.replication.throttled.replicas", "*", ("*",)),
    ],
)
def test_allowed_values_are_read(name: str, text: str, value: object) -> None:
    assert parse_topic_config(name, text) == value


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("retention.ms", "-2", "retention.ms must be at least -1, not '-2'"),
        ("retention.ms", "soon", "must be a whole number"),
        ("retention.ms", "", "must be a whole number"),
        ("retention.ms", "1_000", "must be a whole number"),
        ("retention.ms", "9" * 1000, "must be a whole number"),
        ("retention.ms", str(2**63), "from -9223372036854775808 to 9223372036854775807"),
        ("segment.bytes", str(2**31), "to 2147483647"),
        ("segment.bytes", "1", "at least 14"),
        ("cleanup.policy", "delete,delete", "each at most once"),
        ("cleanup.policy", "delete,shred", "a list of delete, compact"),
        ("min.cleanable.dirty.ratio", "nan", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "2", "from 0 to 1"),
        ("min.cleanable.dirty.ratio", "half", "must be a number"),
        ("unclean.leader.election.enable", "yes", "must be true or false"),
        ("message.timestamp.type", "createtime", "one of CreateTime, LogAppendTime"),
        ("martlet.flush", "sometimes", "one of auto, commit, interval, messages, never"),
        ("compression.type", "none", "one of uncompressed, zstd, lz4, snappy, gzip, producer"),
        ("compression.gzip.level", "0", "-1 or from 1 to 9"),
        ("compression.lz4.level", "18", "from 1 to 17"),
        ("compression.zstd.level", "23", "from -131072 to 22"),
        ("local.retention.ms", "-3", "at least -2"),
        ("remote.storage.enable", "true", "no tiered storage"),
        ("segment.jitter.ms", "-1", "at least 0"),
        ("min.insync.replicas", "0", "at least 1"),
        ("leader.replication.throttled.replicas", "1", "partition:broker pairs"),
        ("retention.ms", "x" * 40_000, "at most 32768 characters"),
        ("no.such.thing", "1", "no topic configuration named 'no.such.thing'"),
    ],
)
def test_a_refused_value_is_answered_with_what_is_allowed(name: str, text: str, sentence: str) -> None:
    with pytest.raises(ApiError) as caught:
        parse_topic_config(name, text)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    assert sentence in caught.value.detail
    assert len(caught.value.detail) < 300


def test_a_topics_own_value_wins_over_the_brokers_and_the_default() -> None:
    layers = BrokerLayers(
        dynamic_broker={"log.retention.ms": "3"},
        dynamic_default={"log.retention.ms": "4"},
        static={"log.retention.ms": "5", "log.retention.hours": "6"},
    )
    entry = effective_topic_config({"retention.ms": "2"}, layers).entry("retention.ms")
    assert (entry.value, entry.source) == ("2", ConfigSource.TOPIC)
    assert entry.synonyms == (
        ConfigSynonym("retention.ms", "2", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.ms", "3", ConfigSource.DYNAMIC_BROKER),
        ConfigSynonym("log.retention.ms", "4", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ConfigSynonym("log.retention.ms", "5", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "6", ConfigSource.STATIC_BROKER),
        ConfigSynonym("log.retention.hours", "168", ConfigSource.DEFAULT),
    )


@pytest.mark.parametrize(
    ("name", "layers", "names"),
    [
        ("retention.ms", BrokerLayers(), []),
        ("retention.ms", BrokerLayers(static={"log.retention.hours": "6"}), []),
        (
            "retention.ms",
            BrokerLayers(dynamic_default={"log.retention.ms": "4"}),
            ["log.retention.ms", "log.retention.hours"],
        ),
        ("segment.ms", BrokerLayers(), []),
        ("segment.jitter.ms", BrokerLayers(), []),
        ("segment.bytes", BrokerLayers(), ["log.segment.bytes"]),
        ("leader.replication.throttled.replicas", BrokerLayers(), []),
    ],
)
def test_the_synonyms_of_what_a_topic_does_not_set_are_those_kafka_names(
    name: str, layers: BrokerLayers, names: list[str]
) -> None:
    assert [synonym.name for synonym in effective_topic_config({}, layers).entry(name).synonyms] == names
    own = effective_topic_config({name: "" if name.endswith("replicas") else "99"}, layers).entry(name)
    assert [synonym.name for synonym in own.synonyms] == [name, *names]


@pytest.mark.parametrize(
    ("layers", "value", "source"),
    [
        (BrokerLayers(dynamic_broker={"log.retention.ms": "3"}), 3, ConfigSource.DYNAMIC_BROKER),
        (BrokerLayers(dynamic_default={"log.retention.ms": "4"}), 4, ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (BrokerLayers(static={"log.retention.ms": "5"}), 5, ConfigSource.STATIC_BROKER),
        (BrokerLayers(static={"log.retention.minutes": "2"}), 120_000, ConfigSource.STATIC_BROKER),
        (BrokerLayers(static={"log.retention.hours": "2"}), 7_200_000, ConfigSource.STATIC_BROKER),
        (BrokerLayers(static={"log.retention.hours": "-1"}), -1, ConfigSource.STATIC_BROKER),
        (BrokerLayers(static={"log.retention.hours": "168"}), 604_800_000, ConfigSource.DEFAULT),
        (BrokerLayers(), 604_800_000, ConfigSource.DEFAULT),
    ],
)
def test_a_topic_without_its_own_value_takes_the_brokers(
    layers: BrokerLayers, value: int, source: ConfigSource
) -> None:
    config = effective_topic_config({}, layers)
    assert config.number("retention.ms") == value
    assert config.entry("retention.ms").value == str(value)
    assert config.entry("retention.ms").source is source


def test_cfg_1_a_stored_value_that_is_refused_today_counts_as_not_set() -> None:
    layers = BrokerLayers(dynamic_broker={"log.segment.bytes": "rubbish"}, static={"log.roll.hours": "0"})
    config = effective_topic_config({"retention.ms": "rubbish"}, layers)
    assert config.number("retention.ms") == 604_800_000
    assert config.number("segment.bytes") == 1_073_741_824
    assert config.number("segment.ms") == 604_800_000


def test_entries_carry_what_describe_configs_shows() -> None:
    entries = {entry.name: entry for entry in effective_topic_config({"cleanup.policy": "compact"}).entries()}
    assert TOPIC_CONFIGS.keys() - entries.keys() == {"message.downconversion.enable", "message.format.version"}
    entry = entries["cleanup.policy"]
    assert (entry.value, entry.type, entry.read_only, entry.is_sensitive) == ("compact", ConfigType.LIST, False, False)
    assert entry.documentation
    assert not entry.is_default
    assert entries["retention.ms"].is_default


def test_only_the_entries_asked_for_are_given_and_unknown_names_are_left_out() -> None:
    entries = effective_topic_config({}).entries(["segment.ms", "retention.ms", "no.such"])
    assert [entry.name for entry in entries] == ["retention.ms", "segment.ms"]


def test_a_broker_shows_nothing_about_what_it_does_not_state() -> None:
    shown = {entry.name: entry for entry in effective_broker_config(BrokerLayers()).entries()}
    assert "offsets.topic.replication.factor" not in shown
    assert "broker.id" not in shown
    assert shown["log.retention.ms"].value is None
    assert shown["log.retention.hours"].value == "168"
    stated = effective_broker_config(BrokerLayers(static={"broker.id": "3"})).entry("broker.id")
    assert (stated.value, stated.source, stated.read_only) == ("3", ConfigSource.STATIC_BROKER, True)


def test_a_brokers_run_time_value_wins_over_the_clusters_and_the_start_value() -> None:
    layers = BrokerLayers(
        dynamic_broker={"message.max.bytes": "1"},
        dynamic_default={"message.max.bytes": "2"},
        static={"message.max.bytes": "3"},
    )
    entry = effective_broker_config(layers).entry("message.max.bytes")
    assert (entry.value, entry.source) == ("1", ConfigSource.DYNAMIC_BROKER)
    assert [synonym.value for synonym in entry.synonyms] == ["1", "2", "3", "1048588"]


def test_a_broker_shows_what_was_set_under_names_it_does_not_know_and_keeps_the_values_to_itself() -> None:
    layers = BrokerLayers(dynamic_broker={"plugin.key": "secret"}, dynamic_default={"plugin.key": "x", "other": "y"})
    config = effective_broker_config(layers)
    entry, other = config.entries(["plugin.key", "other"])
    assert (entry.name, entry.value, entry.source) == ("plugin.key", None, ConfigSource.DYNAMIC_BROKER)
    assert (entry.is_sensitive, entry.type) == (True, ConfigType.UNKNOWN)
    assert [synonym.value for synonym in entry.synonyms] == [None, None]
    assert other.source is ConfigSource.DYNAMIC_DEFAULT_BROKER
    assert {"plugin.key", "other"} <= {each.name for each in config.entries()}


def test_a_group_takes_what_it_does_not_set_from_the_broker() -> None:
    layers = BrokerLayers(static={"group.consumer.session.timeout.ms": "50000"})
    config = effective_group_config({"consumer.heartbeat.interval.ms": "7000"}, layers)
    own, inherited = config.entry("consumer.heartbeat.interval.ms"), config.entry("consumer.session.timeout.ms")
    assert (own.value, own.source) == ("7000", ConfigSource.GROUP)
    assert own.synonyms == (
        ConfigSynonym("consumer.heartbeat.interval.ms", "7000", ConfigSource.GROUP),
        ConfigSynonym("group.consumer.heartbeat.interval.ms", "5000", ConfigSource.DEFAULT),
    )
    assert (inherited.value, inherited.source) == ("50000", ConfigSource.STATIC_BROKER)
    assert config.entry("share.auto.offset.reset").synonyms == (
        ConfigSynonym("share.auto.offset.reset", "latest", ConfigSource.DEFAULT),
    )

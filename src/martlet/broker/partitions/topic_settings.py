"""From configurations to behaviour: the log options, flush settings and replication rules of a topic, the settings of a
group, and this broker's own by Kafka's names.

What wins over what is decided in `martlet.configs.effective`; here the winners become the values that the log and the
flusher use.
"""

from collections.abc import Hashable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.ground.listeners import Listeners
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.partitions.flush_policy import FlushPolicy, decide_flush_mode
from martlet.cluster.image import MetadataImage
from martlet.cluster.records import TopicRecord
from martlet.configs.effective import (
    BROKER_CONFIGS,
    BrokerLayers,
    EffectiveConfig,
    effective_broker_config,
    effective_group_config,
    effective_topic_config,
)
from martlet.log.options import LogOptions
from martlet.queues.delivery_terms import DeliveryLimits
from martlet.queues.publish_look import TopicDelivery
from martlet.replication.leader import ReplicationOptions
from martlet.wire.compression import Compression

_KNOWN_MAX: Final = 1_000
_PRODUCER_ID_EXPIRATION: Final = "producer.id.expiration.ms"
_CODECS: Final[Mapping[str, int | None]] = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}
_WITH_LEVEL: Final = ("gzip", "lz4", "zstd")


class FlushSettings(NamedTuple):
    """A topic's flush configuration, before `auto` is decided."""

    configured: str
    interval_ms: int
    messages: int


class _InForce(NamedTuple):
    log: LogOptions
    flush: FlushSettings
    replication: ReplicationOptions
    delivery: TopicDelivery | None


class TopicSettings:
    """Finds what is in force for a topic on this broker.

    Log options and flush settings are remembered by everything they follow from, because thousands of partitions
    ask and few sets of settings exist.
    """

    def __init__(self, settings: BrokerSettings, image: MetadataImage, static: dict[str, str]) -> None:
        self._broker_id = BrokerId(settings.broker_id)
        self._image = image
        self._static = static
        self._lag_time_max_ms = settings.replica_lag_time_max_ms
        self._lag_messages_max = settings.replica_lag_messages_max or None
        self._known: dict[Hashable, _InForce] = {}
        self.recompresses = False
        """Whether some topic has asked for a codec of its own, so that batches must be checked earlier."""

    def layers(self) -> BrokerLayers:
        """This broker's settings, layer by layer."""
        return BrokerLayers(
            dynamic_broker=self._image.broker_configs(self._broker_id),
            dynamic_default=self._image.broker_configs(None),
            static=self._static,
        )

    def topic_config(self, topic: TopicRecord) -> EffectiveConfig:
        return effective_topic_config(topic.configs, self.layers())

    def broker_config(self) -> EffectiveConfig:
        return effective_broker_config(self.layers())

    def group_config(self, group: str) -> EffectiveConfig:
        return effective_group_config(self._image.group_configs(group), self.layers())

    def flush_policy(self, topic: TopicRecord, replica_count: int) -> FlushPolicy:
        """When the batches of this topic's partitions are forced to the device."""
        flush = self._settings_of(topic).flush
        return FlushPolicy(decide_flush_mode(flush.configured, replica_count), flush.interval_ms, flush.messages)

    def replication(self, topic: TopicRecord) -> ReplicationOptions:
        """What this topic demands of its followers."""
        return self._settings_of(topic).replication

    def delivery(self, topic: TopicRecord) -> TopicDelivery | None:
        """What its messages may say of their delivery; None where nothing looks at that."""
        return self._settings_of(topic).delivery

    def options_for(self, partition: TopicPartition) -> LogOptions:
        """Options for a log found on disk; the defaults when its topic is not known."""
        topic = self._image.topic(partition.topic)
        return LogOptions() if topic is None else self.log_options(topic)

    def log_options(self, topic: TopicRecord) -> LogOptions:
        """What the log of each of the topic's partitions goes by."""
        return self._settings_of(topic).log

    def _settings_of(self, topic: TopicRecord) -> _InForce:
        layers = self.layers()
        sources = (topic.configs, layers.dynamic_broker, layers.dynamic_default)
        key = tuple(frozenset(source.items()) for source in sources)
        known = self._known.get(key)
        if known is None:
            if len(self._known) >= _KNOWN_MAX:
                self._known.clear()
            config = self.topic_config(topic)
            replication = ReplicationOptions(
                min_in_sync=config.number("min.insync.replicas"),
                lag_time_max_ms=self._lag_time_max_ms,
                lag_messages_max=self._lag_messages_max,
            )
            log_options = replace(
                read_log_options(config), producer_id_expiration_ms=self.broker_config().number(_PRODUCER_ID_EXPIRATION)
            )
            self.recompresses = self.recompresses or log_options.compression is not None
            known = _InForce(log_options, read_flush_settings(config), replication, read_delivery(config, log_options))
            self._known[key] = known
        return known


def read_flush_settings(config: EffectiveConfig) -> FlushSettings:
    """The flush settings among a topic's configurations."""
    return FlushSettings(
        config.text("martlet.flush"), max(config.number("flush.ms"), 1), config.number("flush.messages")
    )


def read_delivery(config: EffectiveConfig, log: LogOptions) -> TopicDelivery | None:
    """What the topic asks to look for in headers, and what it allows there."""
    features = frozenset(config.words("martlet.queue.features"))
    if not features:
        return None
    keeps_all = not log.delete or log.retention_ms < 0
    limits = DeliveryLimits(config.number("martlet.delay.max.ms"), None if keeps_all else log.retention_ms)
    return TopicDelivery(features, limits, log.log_append_time)


def read_log_options(config: EffectiveConfig) -> LogOptions:
    """The log's options among a topic's configurations."""
    policies = config.words("cleanup.policy")
    codec = config.text("compression.type")
    return LogOptions(
        segment_bytes=config.number("segment.bytes"),
        segment_ms=config.number("segment.ms"),
        segment_jitter_ms=config.number("segment.jitter.ms"),
        index_interval_bytes=config.number("index.interval.bytes"),
        retention_ms=config.number("retention.ms"),
        retention_bytes=config.number("retention.bytes"),
        max_message_bytes=config.number("max.message.bytes"),
        delete="delete" in policies,
        compact="compact" in policies,
        delete_retention_ms=config.number("delete.retention.ms"),
        min_compaction_lag_ms=config.number("min.compaction.lag.ms"),
        max_compaction_lag_ms=config.number("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=config.real("min.cleanable.dirty.ratio"),
        log_append_time=config.text("message.timestamp.type") == "LogAppendTime",
        timestamp_before_max_ms=config.number("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=config.number("message.timestamp.after.max.ms"),
        file_delete_delay_ms=config.number("file.delete.delay.ms"),
        compression=_CODECS[codec],
        compression_level=config.number(f"compression.{codec}.level") if codec in _WITH_LEVEL else None,
    )


def static_configs(settings: BrokerSettings, listeners: Listeners, *, log_directory: str) -> dict[str, str]:
    """The settings this broker was started with, by the names Kafka's tools ask for."""
    return {
        "broker.id": str(settings.broker_id),
        "node.id": str(settings.broker_id),
        "broker.rack": settings.rack,
        **_listener_configs(listeners),
        "log.dirs": log_directory,
        "auto.create.topics.enable": str(settings.auto_create_topics).lower(),
        "num.partitions": str(settings.default_partitions),
        "default.replication.factor": str(settings.default_replication_factor),
        **_consumer_group_configs(settings),
        "group.initial.rebalance.delay.ms": str(settings.group_initial_rebalance_delay_ms),
        "group.max.session.timeout.ms": str(settings.group_max_session_timeout_ms),
        "group.max.size": str(settings.group_max_size),
        "group.min.session.timeout.ms": str(settings.group_min_session_timeout_ms),
        "offsets.retention.minutes": str(settings.offsets_retention_minutes),
        "offsets.topic.num.partitions": str(settings.offsets_topic_partitions),
        "transaction.max.timeout.ms": str(settings.transaction_max_timeout_ms),
        "transaction.state.log.num.partitions": str(settings.transactions_topic_partitions),
        "transaction.state.log.replication.factor": str(settings.transactions_topic_replication_factor),
        "max.connections": str(settings.connections_max),
        "max.connections.per.ip": str(settings.connections_per_address_max),
        "connections.max.idle.ms": str(settings.idle_timeout_ms),
        "socket.request.max.bytes": str(settings.request_bytes_max),
        "fetch.max.bytes": str(settings.fetch_bytes_max),
        "log.cleaner.backoff.ms": str(settings.cleaner_interval_ms),
        "log.flush.interval.ms": str(settings.flush_interval_ms),
        "log.flush.interval.messages": str(settings.flush_messages),
        "log.flush.offset.checkpoint.interval.ms": str(settings.checkpoint_interval_ms),
        "log.retention.check.interval.ms": str(settings.retention_check_interval_ms),
    }


def _listener_configs(listeners: Listeners) -> dict[str, str]:
    return {
        "listeners": ",".join(f"{one.name}://{one.address}" for one in listeners.all),
        "advertised.listeners": ",".join(f"{one.name}://{one.advertised or one.address}" for one in listeners.all),
        "listener.security.protocol.map": ",".join(f"{one.name}:{one.protocol.kafka_name}" for one in listeners.all),
    }


def _consumer_group_configs(settings: BrokerSettings) -> dict[str, str]:
    """The times of consumer groups; what this broker was started with is always among what a group may set."""
    session_ms, heartbeat_ms = settings.consumer_group_session_timeout_ms, settings.consumer_group_heartbeat_interval_ms
    configs: dict[str, str] = {}
    for name, value in (("session.timeout.ms", session_ms), ("heartbeat.interval.ms", heartbeat_ms)):
        least, greatest = f"group.consumer.min.{name}", f"group.consumer.max.{name}"
        configs[f"group.consumer.{name}"] = str(value)
        configs[least] = str(min(value, int(BROKER_CONFIGS[least].default or 0)))
        configs[greatest] = str(max(value, int(BROKER_CONFIGS[greatest].default or 0)))
    return configs

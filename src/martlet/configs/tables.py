"""The tables of configurations: `TOPIC_CONFIGS`, `BROKER_CONFIGS` and `GROUP_CONFIGS`, under Kafka's names.

Rules: data only. Most topic configurations have a twin at the broker, often under an older name: the default of every
topic that does not set its own. A broker's other settings are in `broker_rows.py`, those of groups in `group_rows.py`.
Everything that Kafka 4.3 lets its tools set is here, and `effect` says what becomes of it: what only tunes Kafka's
insides is taken without effect, what promises something that Martlet would not do is refused with the reason. Defaults
are Kafka's except for the flush settings, which work together with `martlet.flush`. A configuration marked
`only_when_set` is shown when it has a value. `docs/settings.md` is these tables in prose.

Proved by: tests/unit/configs/test_effective.py, tests/tidy/test_settings_table.py
"""

from typing import Final, NamedTuple

from martlet.configs.broker_rows import BROKER_ROWS
from martlet.configs.definition import (
    LONG_MAX,
    Check,
    ConfigDef,
    ConfigType,
    Effect,
    Inherited,
    any_of,
    between,
    either,
    one_of,
    only,
    throttled_replicas,
)
from martlet.configs.group_rows import GROUP_BROKER_ROWS, GROUP_ROWS

FLUSH_MODES: Final = ("auto", "commit", "interval", "messages", "never")

QUEUE_FEATURES: Final = ("delay", "expiry", "priority", "key-order", "filter")
"""What a topic may have its queues look for."""

_BOOLEAN, _INT, _LONG = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG
_DOUBLE, _LIST, _STRING = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.STRING
_NO_EFFECT, _REFUSED = Effect.NONE, Effect.REFUSED

_DAY_MS: Final = 86_400_000
_WEEK_MS: Final = 7 * _DAY_MS


class _Row(NamedTuple):
    """One topic configuration; `broker` is its twin's name at the broker, empty when it has none."""

    topic: str
    broker: str
    type: ConfigType
    default: object
    check: Check | None
    doc: str
    effect: Effect = Effect.HONOURED


COMPRESSION_TYPES: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

_TOPIC_ROWS: Final = (
    _Row(
        "cleanup.policy", "log.cleanup.policy", _LIST, "delete", any_of("delete", "compact"),
        "What happens to old segments: delete them by age or size, compact them to the latest value per key, both, or "
        "nothing.",
    ),
    _Row(
        "compression.gzip.level", "compression.gzip.level", _INT, -1, either(-1, 1, 9),
        "How hard gzip tries where compression.type is gzip; -1 for its own choice.",
    ),
    _Row(
        "compression.lz4.level", "compression.lz4.level", _INT, 9, between(1, 17),
        "How hard LZ4 tries where compression.type is lz4; 9, as in Kafka, stands for its fast way.",
    ),
    _Row(
        "compression.type", "compression.type", _STRING, "producer", one_of(*COMPRESSION_TYPES),
        "How batches are compressed on disk: as the producer sent them, or in this "
        "way, into which the broker brings those that came otherwise.",
    ),
    _Row(
        "compression.zstd.level", "compression.zstd.level", _INT, 3, between(-131_072, 22),
        "How hard Zstandard tries where compression.type is zstd.",
    ),
    _Row(
        "delete.retention.ms", "log.cleaner.delete.retention.ms", _LONG, _DAY_MS, between(0),
        "How long a compacted topic keeps the marker of a deleted key.",
    ),
    _Row(
        "file.delete.delay.ms", "log.segment.delete.delay.ms", _LONG, 60_000, between(0),
        "How long a file stays on disk after its segment was deleted.",
    ),
    _Row(
        "flush.messages", "log.flush.interval.messages", _LONG, 10_000, between(1),
        "Messages between two flushes to the device; used when martlet.flush is messages.",
    ),
    _Row(
        "flush.ms", "log.flush.interval.ms", _LONG, 1_000, between(0),
        "Time between two flushes to the device; used when martlet.flush is interval.",
    ),
    _Row(
        "index.interval.bytes", "log.index.interval.bytes", _INT, 4_096, between(0),
        "Bytes of messages between two entries of the offset index.",
    ),
    _Row(
        "leader.replication.throttled.replicas", "", _LIST, "", throttled_replicas,
        "Martlet slows copying down where it is received, see follower.replication.throttled.replicas.", _NO_EFFECT,
    ),
    _Row(
        "local.retention.bytes", "log.local.retention.bytes", _LONG, -2, between(-2),
        "There is no tiered storage: retention.bytes says what is kept.", _NO_EFFECT,
    ),
    _Row(
        "local.retention.ms", "log.local.retention.ms", _LONG, -2, between(-2),
        "There is no tiered storage: retention.ms says what is kept.", _NO_EFFECT,
    ),
    _Row(
        "follower.replication.throttled.replicas", "", _LIST, "", throttled_replicas,
        "Replicas that copy at follower.replication.throttled.rate at most until they are in sync: partition:broker "
        "pairs, or * for all.",
    ),
    _Row(
        "martlet.delay.max.ms", "martlet.delay.max.ms", _LONG, 366 * _DAY_MS, between(1),
        "How long a message may be delayed at most, where martlet.queue.features has delay; a longer delay is refused.",
    ),
    _Row(
        "martlet.flush", "martlet.flush", _STRING, "auto", one_of(*FLUSH_MODES),
        "When messages are forced to the device: before each acknowledgement (commit), every flush.ms (interval), "
        "every flush.messages (messages), when the system likes (never), or as replication allows (auto): commit for "
        "a single replica, interval for several.",
    ),
    _Row(
        "martlet.queue.features", "", _LIST, "", any_of(*QUEUE_FEATURES),
        "What queues look for in the headers of this topic's messages: delay, expiry, priority, key-order, filter. "
        "Headers of ours that make no sense are refused where this is set; empty leaves messages unopened.",
    ),
    _Row(
        "max.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms", _LONG, LONG_MAX, between(1),
        "How long a message may stay uncompacted at most.",
    ),
    _Row(
        "max.message.bytes", "message.max.bytes", _INT, 1_048_588, between(0),
        "Largest record batch accepted.",
    ),
    _Row(
        "message.downconversion.enable", "", _BOOLEAN, None, None,
        "Gone since Kafka 4 and still sent by older tools; old record formats are never served.", _NO_EFFECT,
    ),
    _Row(
        "message.format.version", "", _STRING, None, None,
        "Gone since Kafka 4 and still sent by older tools; there is one record format.", _NO_EFFECT,
    ),
    _Row(
        "message.timestamp.after.max.ms", "log.message.timestamp.after.max.ms", _LONG, 3_600_000, between(0),
        "How far a message's timestamp may lie ahead of the broker's clock.",
    ),
    _Row(
        "message.timestamp.before.max.ms", "log.message.timestamp.before.max.ms", _LONG, LONG_MAX, between(0),
        "How far a message's timestamp may lie behind the broker's clock.",
    ),
    _Row(
        "message.timestamp.type", "log.message.timestamp.type", _STRING, "CreateTime",
        one_of("CreateTime", "LogAppendTime"),
        "Whether a message keeps its producer's timestamp or gets the time at which it was appended.",
    ),
    _Row(
        "min.cleanable.dirty.ratio", "log.cleaner.min.cleanable.ratio", _DOUBLE, 0.5, between(0, 1),
        "The uncompacted part of a log that makes compaction worth while.",
    ),
    _Row(
        "min.compaction.lag.ms", "log.cleaner.min.compaction.lag.ms", _LONG, 0, between(0),
        "How long a message stays uncompacted at least.",
    ),
    _Row(
        "min.insync.replicas", "min.insync.replicas", _INT, 1, between(1),
        "Replicas that must hold a message before it is acknowledged to a producer with acks=all.",
    ),
    _Row(
        "preallocate", "log.preallocate", _BOOLEAN, "false", None,
        "Segment files grow as they are written.", _NO_EFFECT,
    ),
    _Row(
        "remote.log.copy.disable", "", _BOOLEAN, "false", None,
        "There is no tiered storage.", _NO_EFFECT,
    ),
    _Row(
        "remote.log.delete.on.disable", "", _BOOLEAN, "false", None,
        "There is no tiered storage.", _NO_EFFECT,
    ),
    _Row(
        "remote.storage.enable", "", _BOOLEAN, "false", only(False, "false (Martlet has no tiered storage)"),
        "There is no tiered storage: only false is taken.", _REFUSED,
    ),
    _Row(
        "retention.bytes", "log.retention.bytes", _LONG, -1, between(-1),
        "Size beyond which a partition's oldest segments are deleted; -1 for no limit.",
    ),
    _Row(
        "retention.ms", "log.retention.ms", _LONG, _WEEK_MS, between(-1),
        "Age beyond which segments are deleted; -1 for no limit.",
    ),
    _Row(
        "segment.bytes", "log.segment.bytes", _INT, 1 << 30, between(14),
        "Size at which a new segment is begun.",
    ),
    _Row(
        "segment.index.bytes", "log.index.size.max.bytes", _INT, 10_485_760, between(4),
        "Index files grow with their segment and need no limit.", _NO_EFFECT,
    ),
    _Row(
        "segment.jitter.ms", "log.roll.jitter.ms", _LONG, 0, between(0),
        "Up to so much earlier than segment.ms a new segment is begun, each partition at a time of its own.",
    ),
    _Row(
        "segment.ms", "log.roll.ms", _LONG, _WEEK_MS, between(1),
        "Age at which a new segment is begun.",
    ),
    _Row(
        "unclean.leader.election.enable", "unclean.leader.election.enable", _BOOLEAN, "false", None,
        "Whether a replica that may lack acknowledged messages can lead when no other is left.",
    ),
)  # fmt: skip

# Older names of the same default in larger units. They cannot be changed at run time, as in Kafka, and the name in
# milliseconds, having no default of its own, wins over them.
_IN_OTHER_UNITS: Final = {
    "log.retention.ms": (Inherited("log.retention.minutes", 60_000), Inherited("log.retention.hours", 3_600_000)),
    "log.roll.jitter.ms": (Inherited("log.roll.jitter.hours", 3_600_000),),
    "log.roll.ms": (Inherited("log.roll.hours", 3_600_000),),
}


def _topic_config(row: _Row) -> ConfigDef:
    inherits = (Inherited(row.broker), *_IN_OTHER_UNITS.get(row.broker, ())) if row.broker else ()
    return ConfigDef(
        name=row.topic,
        type=row.type,
        default=None if row.default is None else str(row.default),
        check=row.check,
        doc=row.doc,
        inherits=inherits,
        only_when_set=row.default is None,
        effect=row.effect,
    )


def _broker_twin(row: _Row) -> ConfigDef:
    default = None if row.broker in _IN_OTHER_UNITS else str(row.default)
    return ConfigDef(name=row.broker, type=row.type, default=default, check=row.check, doc=row.doc, effect=row.effect)


def _by_name(*definitions: ConfigDef) -> dict[str, ConfigDef]:
    return {definition.name: definition for definition in sorted(definitions, key=lambda each: each.name)}


TOPIC_CONFIGS: Final = _by_name(*(_topic_config(row) for row in _TOPIC_ROWS))

BROKER_CONFIGS: Final = _by_name(
    *(_broker_twin(row) for row in _TOPIC_ROWS if row.broker), *BROKER_ROWS, *GROUP_BROKER_ROWS
)

GROUP_CONFIGS: Final = _by_name(*GROUP_ROWS)

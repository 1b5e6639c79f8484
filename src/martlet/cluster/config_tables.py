"""The tables of configurations: `TOPIC_CONFIGS` and `BROKER_CONFIGS`, under Kafka's names.

Rules: data only. Most topic configurations have a twin at the broker under an older name (`retention.ms` and
`log.retention.ms`): the twin is the default of every topic that does not set its own and can be changed at run time.
What Martlet would silently not do is refused with the reason instead of being stored (pre-allocation, remote
storage, compression by the broker, jitter). Martlet's own names begin with `martlet.`. Defaults are Kafka's except
for the flush settings, which only work together with `martlet.flush`.

A broker configuration marked `only_when_set` tells about something that may not exist in this broker; it is shown
when the broker states its value, and never invented.

Proved by: tests/unit/cluster/test_configs.py
"""

from typing import Final, NamedTuple

from martlet.cluster.config_definition import (
    LONG_MAX,
    Check,
    ConfigDef,
    ConfigType,
    Inherited,
    between,
    one_of,
    only,
    some_of,
    throttled_replicas,
)

FLUSH_MODES: Final = ("auto", "commit", "interval", "messages", "never")

_BOOLEAN, _INT, _LONG, _SHORT = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_DOUBLE, _LIST, _STRING = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.STRING

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


_TOPIC_ROWS: Final = (
    _Row(
        "cleanup.policy", "log.cleanup.policy", _LIST, "delete", some_of("delete", "compact"),
        "What happens to old segments: delete them by age or size, compact them to the latest value per key, or both.",
    ),
    _Row(
        "compression.type", "compression.type", _STRING, "producer",
        only("producer", "producer (Martlet keeps batches exactly as they were sent and never compresses them anew)"),
        "How batches are compressed on disk: as the producer sent them.",
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
        "flush.ms", "log.flush.interval.ms", _LONG, 1_000, between(1),
        "Time between two flushes to the device; used when martlet.flush is interval.",
    ),
    _Row(
        "index.interval.bytes", "log.index.interval.bytes", _INT, 4_096, between(0),
        "Bytes of messages between two entries of the offset index.",
    ),
    _Row(
        "leader.replication.throttled.replicas", "", _LIST, "", throttled_replicas,
        "Accepted for compatibility: Martlet slows copying down where it is received.",
    ),
    _Row(
        "follower.replication.throttled.replicas", "", _LIST, "", throttled_replicas,
        "Replicas that copy at follower.replication.throttled.rate at most until they are in sync: partition:broker "
        "pairs, or * for all.",
    ),
    _Row(
        "martlet.flush", "martlet.flush", _STRING, "auto", one_of(*FLUSH_MODES),
        "When messages are forced to the device: before each acknowledgement (commit), every flush.ms (interval), "
        "every flush.messages (messages), when the system likes (never), or as replication allows (auto): commit for "
        "a single replica, interval for several.",
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
        "preallocate", "log.preallocate", _BOOLEAN, "false",
        only(False, "false (Martlet lets segment files grow as they are written)"),
        "Whether a segment's file takes its full size when it is made.",
    ),
    _Row(
        "remote.storage.enable", "", _BOOLEAN, "false", only(False, "false (Martlet has no tiered storage)"),
        "Whether old segments move to remote storage.",
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
        "Accepted for compatibility: Martlet's index files grow with their segment and need no limit.",
    ),
    _Row(
        "segment.jitter.ms", "log.roll.jitter.ms", _LONG, 0,
        only(0, "0 (Martlet begins new segments exactly after segment.ms)"),
        "Random part of segment.ms.",
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
    "log.roll.ms": (Inherited("log.roll.hours", 3_600_000),),
}


def _read_only(
    name: str, type_: ConfigType, default: str | None, doc: str, *, only_when_set: bool = False
) -> ConfigDef:
    return ConfigDef(name=name, type=type_, default=default, doc=doc, read_only=True, only_when_set=only_when_set)


_FIXED_BROKER_CONFIGS: Final = (
    _read_only("auto.create.topics.enable", _BOOLEAN, "true", "Whether a topic is made when a client first names it."),
    _read_only("connections.max.idle.ms", _LONG, "600000", "A connection without requests is closed after this time."),
    _read_only("default.replication.factor", _INT, "1", "Replicas of a topic made without a number."),
    _read_only("delete.topic.enable", _BOOLEAN, "true", "Whether clients may delete topics."),
    _read_only("fetch.max.bytes", _INT, "57671680", "Largest answer to one fetch."),
    _read_only("log.cleaner.backoff.ms", _LONG, "15000", "Time between looks for segments to compact."),
    _read_only("log.cleaner.enable", _BOOLEAN, "true", "Whether compacted topics are compacted."),
    _read_only("log.flush.offset.checkpoint.interval.ms", _INT, "5000", "Time between writes of the recovery points."),
    _read_only("log.retention.check.interval.ms", _LONG, "300000", "Time between looks for segments to delete."),
    _read_only("log.retention.hours", _INT, "168", "Age beyond which segments are deleted, unless set in finer units."),
    _read_only("log.retention.minutes", _INT, None, "Age beyond which segments are deleted, unless set in ms."),
    _read_only("log.roll.hours", _INT, "168", "Age at which a new segment is begun, unless set in ms."),
    _read_only("num.partitions", _INT, "1", "Partitions of a topic made without a number."),
    _read_only(
        "producer.id.expiration.ms", _INT, "86400000", "An idempotent producer is forgotten when silent so long."
    ),
    _read_only("socket.request.max.bytes", _INT, "104857600", "Largest request accepted."),
)

_CHANGEABLE_BROKER_CONFIGS: Final = (
    ConfigDef(
        name="follower.replication.throttled.rate",
        type=_LONG,
        default=str(LONG_MAX),
        check=between(1),
        doc="Bytes per second with which the replicas in follower.replication.throttled.replicas are copied here.",
    ),
    ConfigDef(
        name="leader.replication.throttled.rate",
        type=_LONG,
        default=str(LONG_MAX),
        check=between(1),
        doc="Accepted for compatibility: Martlet slows copying down where it is received.",
    ),
)

_STATED_BROKER_CONFIGS: Final = (
    ("advertised.listeners", _STRING, "Addresses told to clients."),
    ("broker.id", _INT, "Number of this broker, unique in its cluster."),
    ("broker.rack", _STRING, "Failure zone of this broker."),
    ("group.initial.rebalance.delay.ms", _INT, "Time a new group waits for more members before its first assignment."),
    ("group.max.session.timeout.ms", _INT, "Longest session timeout a member may ask for."),
    ("group.max.size", _INT, "Members a group may have."),
    ("group.min.session.timeout.ms", _INT, "Shortest session timeout a member may ask for."),
    ("listeners", _STRING, "Addresses this broker serves."),
    ("log.dirs", _STRING, "Directories that hold the messages."),
    ("max.connections", _INT, "Connections served at once."),
    ("max.connections.per.ip", _INT, "Connections served at once from one address."),
    ("node.id", _INT, "Number of this broker, unique in its cluster."),
    ("offsets.retention.minutes", _INT, "Time for which offsets of an empty group are kept."),
    ("offsets.topic.num.partitions", _INT, "Partitions of the internal topic for group offsets."),
    ("offsets.topic.replication.factor", _SHORT, "Replicas of the internal topic for group offsets."),
    ("transaction.max.timeout.ms", _INT, "Longest transaction timeout a producer may ask for."),
    ("transaction.state.log.min.isr", _INT, "In-sync replicas the internal topic for transactions needs."),
    ("transaction.state.log.num.partitions", _INT, "Partitions of the internal topic for transactions."),
    ("transaction.state.log.replication.factor", _SHORT, "Replicas of the internal topic for transactions."),
)


def _topic_config(row: _Row) -> ConfigDef:
    inherits = (Inherited(row.broker), *_IN_OTHER_UNITS.get(row.broker, ())) if row.broker else ()
    return ConfigDef(
        name=row.topic, type=row.type, default=str(row.default), check=row.check, doc=row.doc, inherits=inherits
    )


def _broker_twin(row: _Row) -> ConfigDef:
    default = None if row.broker in _IN_OTHER_UNITS else str(row.default)
    return ConfigDef(name=row.broker, type=row.type, default=default, check=row.check, doc=row.doc)


def _by_name(*definitions: ConfigDef) -> dict[str, ConfigDef]:
    return {definition.name: definition for definition in sorted(definitions, key=lambda each: each.name)}


TOPIC_CONFIGS: Final = _by_name(*(_topic_config(row) for row in _TOPIC_ROWS))

BROKER_CONFIGS: Final = _by_name(
    *(_broker_twin(row) for row in _TOPIC_ROWS if row.broker),
    *_CHANGEABLE_BROKER_CONFIGS,
    *_FIXED_BROKER_CONFIGS,
    *(_read_only(name, type_, None, doc, only_when_set=True) for name, type_, doc in _STATED_BROKER_CONFIGS),
)

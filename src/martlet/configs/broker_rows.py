"""A broker's configurations that are not the default of a topic's: data for `config_tables.py`.

Rules: data only. What Kafka lets tools change at run time is here whole; of what Kafka, too, fixes at the start of a
broker only what tells something about this one. The names of the rest are in `kafka_start_settings.py`.
"""

from collections.abc import Iterator
from typing import Final

from martlet.configs.definition import LONG_MAX, Check, ConfigDef, ConfigType, Effect, between, only, unset

_BOOLEAN, _INT, _LONG, _SHORT = ConfigType.BOOLEAN, ConfigType.INT, ConfigType.LONG, ConfigType.SHORT
_DOUBLE, _LIST, _STRING = ConfigType.DOUBLE, ConfigType.LIST, ConfigType.STRING

_DOUBLE_MAX: Final = "1.7976931348623157E308"


def _read_only(
    name: str, type_: ConfigType, default: str | None, doc: str, *, only_when_set: bool = False
) -> ConfigDef:
    return ConfigDef(name=name, type=type_, default=default, doc=doc, read_only=True, only_when_set=only_when_set)


_FIXED: Final = (
    _read_only("auto.create.topics.enable", _BOOLEAN, "true", "Whether a topic is made when a client first names it."),
    _read_only("connections.max.idle.ms", _LONG, "600000", "A connection without requests is closed after this time."),
    _read_only("default.replication.factor", _INT, "1", "Replicas of a topic made without a number."),
    _read_only("delete.topic.enable", _BOOLEAN, "true", "Whether clients may delete topics."),
    _read_only("fetch.max.bytes", _INT, "57671680", "Largest answer to one fetch."),
    _read_only("log.cleaner.enable", _BOOLEAN, "true", "Whether compacted topics are compacted."),
    _read_only("log.flush.offset.checkpoint.interval.ms", _INT, "5000", "Time between writes of the recovery points."),
    _read_only("log.retention.check.interval.ms", _LONG, "300000", "Time between checks for segments to delete."),
    _read_only("log.retention.hours", _INT, "168", "Age beyond which segments are deleted, unless set in finer units."),
    _read_only("log.retention.minutes", _INT, None, "Age beyond which segments are deleted, unless set in ms."),
    _read_only("log.roll.hours", _INT, "168", "Age at which a new segment is begun, unless set in ms."),
    _read_only("log.roll.jitter.hours", _INT, "0", "Up to so much earlier a new segment is begun, unless set in ms."),
    _read_only("num.partitions", _INT, "1", "Partitions of a topic made without a number."),
    _read_only("socket.request.max.bytes", _INT, "104857600", "Largest request accepted."),
)

_STATED: Final = (
    ("advertised.listeners", _STRING, "Addresses given to clients."),
    ("broker.id", _INT, "Number of this broker, unique in its cluster."),
    ("broker.rack", _STRING, "Failure zone of this broker."),
    ("group.initial.rebalance.delay.ms", _INT, "Time a new group waits for more members before its first assignment."),
    ("group.max.session.timeout.ms", _INT, "Longest session timeout a member may ask for."),
    ("group.max.size", _INT, "Members a group may have."),
    ("group.min.session.timeout.ms", _INT, "Shortest session timeout a member may ask for."),
    ("listener.security.protocol.map", _STRING, "How the listeners are protected; fixed when the broker is started."),
    ("listeners", _STRING, "Addresses this broker serves; fixed when the broker is started."),
    ("log.dirs", _STRING, "Directories that hold the messages."),
    ("node.id", _INT, "Number of this broker, unique in its cluster."),
    ("offsets.retention.minutes", _INT, "Time for which offsets of an empty group are kept."),
    ("offsets.topic.num.partitions", _INT, "Partitions of the internal topic for group offsets."),
    ("offsets.topic.replication.factor", _SHORT, "Replicas of the internal topic for group offsets."),
    ("transaction.max.timeout.ms", _INT, "Longest transaction timeout a producer may ask for."),
    ("transaction.state.log.min.isr", _INT, "In-sync replicas the internal topic for transactions needs."),
    ("transaction.state.log.num.partitions", _INT, "Partitions of the internal topic for transactions."),
    ("transaction.state.log.replication.factor", _SHORT, "Replicas of the internal topic for transactions."),
)


def _changeable(
    name: str, type_: ConfigType, default: object, check: Check | None, doc: str, effect: Effect = Effect.HONOURED
) -> ConfigDef:
    return ConfigDef(name=name, type=type_, default=str(default), check=check, doc=doc, effect=effect)


_HONOURED: Final = (
    ConfigDef(
        name="max.connections",
        type=_INT,
        default=None,
        check=between(1),
        doc="Connections served at once, at most what the system's limit of open files allows.",
        only_when_set=True,
    ),
    ConfigDef(
        name="max.connections.per.ip",
        type=_INT,
        default=None,
        check=between(1),
        doc="Connections served at once from one address.",
        only_when_set=True,
    ),
    _changeable(
        "follower.replication.throttled.rate", _LONG, LONG_MAX, between(1),
        "Bytes per second with which the replicas in follower.replication.throttled.replicas are copied here.",
    ),
    _changeable(
        "log.cleaner.backoff.ms", _LONG, 15_000, between(0),
        "Time between checks for segments to compact, at least 50 ms.",
    ),
    _changeable(
        "producer.id.expiration.ms", _INT, 86_400_000, between(1),
        "An idempotent producer is forgotten when silent so long.",
    ),
)  # fmt: skip

_EVENT_LOOP: Final = "Requests are served by one event loop, and what takes long by threads of Python's choice."
_ONE_DIRECTORY: Final = "A broker has one log directory: replicas never move from one to another."
_FOLLOWERS: Final = "A broker has one fetcher for each broker it copies from."
_COMPACTION: Final = "Compaction has one thread and takes the memory that a segment's keys need."
_NOT_TIERED: Final = "There is no tiered storage."
_STATE_BESIDE_DATA: Final = "The state of share groups lies beside the data they read, not with a coordinator."

_WITHOUT_EFFECT: Final[tuple[tuple[str, ConfigType, object, Check | None, str], ...]] = (
    ("background.threads", _INT, 10, between(1), _EVENT_LOOP),
    ("follower.fetch.last.tiered.offset.enable", _BOOLEAN, "false", None, _NOT_TIERED),
    (
        "group.coordinator.cached.buffer.max.bytes", _INT, 1_048_588, between(524_288),
        "The coordinator keeps no buffers between its writes.",
    ),
    (
        "leader.replication.throttled.rate", _LONG, LONG_MAX, between(1),
        "Martlet slows copying down where it is received, see follower.replication.throttled.rate.",
    ),
    ("log.cleaner.dedupe.buffer.size", _LONG, 134_217_728, None, _COMPACTION),
    ("log.cleaner.io.buffer.load.factor", _DOUBLE, 0.9, None, _COMPACTION),
    ("log.cleaner.io.buffer.size", _INT, 524_288, between(0), _COMPACTION),
    ("log.cleaner.threads", _INT, 1, between(0), _COMPACTION),
    ("num.io.threads", _INT, 8, between(1), _EVENT_LOOP),
    ("num.network.threads", _INT, 3, between(1), _EVENT_LOOP),
    ("num.recovery.threads.per.data.dir", _INT, 2, between(1), "Logs are opened one after another."),
    ("num.replica.fetchers", _INT, 1, between(1), _FOLLOWERS),
    ("remote.fetch.max.wait.ms", _INT, 500, between(1), _NOT_TIERED),
    ("remote.list.offsets.request.timeout.ms", _LONG, 30_000, between(1), _NOT_TIERED),
    ("remote.log.index.file.cache.total.size.bytes", _LONG, 1_073_741_824, between(1), _NOT_TIERED),
    ("remote.log.manager.copier.thread.pool.size", _INT, 10, between(1), _NOT_TIERED),
    ("remote.log.manager.copy.max.bytes.per.second", _LONG, LONG_MAX, between(1), _NOT_TIERED),
    ("remote.log.manager.expiration.thread.pool.size", _INT, 10, between(1), _NOT_TIERED),
    ("remote.log.manager.fetch.max.bytes.per.second", _LONG, LONG_MAX, between(1), _NOT_TIERED),
    ("remote.log.manager.follower.thread.pool.size", _INT, 2, between(1), _NOT_TIERED),
    ("remote.log.reader.threads", _INT, 10, between(1), _NOT_TIERED),
    ("replica.alter.log.dirs.io.max.bytes.per.second", _LONG, LONG_MAX, between(1), _ONE_DIRECTORY),
    ("share.coordinator.cached.buffer.max.bytes", _INT, 1_048_588, between(524_288), _STATE_BESIDE_DATA),
    ("transaction.partition.verification.enable", _BOOLEAN, "true", None, "It is always on."),
)  # fmt: skip

_NO_TLS: Final = "TLS is set up when a broker starts"
_NO_SASL: Final = "authentication is set up when a broker starts"
_NO_PLUGINS: Final = "Martlet loads no classes"

_REFUSED_NAMES: Final = {
    _NO_TLS: (
        "ssl.cipher.suites", "ssl.client.auth", "ssl.enabled.protocols", "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class", "ssl.key.password", "ssl.keymanager.algorithm", "ssl.keystore.certificate.chain",
        "ssl.keystore.key", "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type", "ssl.protocol",
        "ssl.provider", "ssl.secure.random.implementation", "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates", "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type",
    ),
    _NO_SASL: (
        "principal.builder.class", "sasl.enabled.mechanisms", "sasl.jaas.config", "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin", "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name", "sasl.kerberos.ticket.renew.jitter", "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds", "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor", "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
    ),
    _NO_PLUGINS: ("config.providers", "metric.reporters"),
    "a broker has one log directory, which martlet.drain empties": ("cordoned.log.dirs",),
}  # fmt: skip


def _refused() -> Iterator[ConfigDef]:
    for reason, names in _REFUSED_NAMES.items():
        for name in names:
            # Whatever comes under these names may be a secret, and is not kept nor repeated.
            yield ConfigDef(
                name=name,
                type=_STRING,
                default=None,
                doc=f"{reason[0].upper()}{reason[1:]}.",
                check=unset(reason),
                sensitive=True,
                only_when_set=True,
                effect=Effect.REFUSED,
            )
    yield _changeable(
        "log.cleaner.io.max.bytes.per.second", _DOUBLE, _DOUBLE_MAX,
        only(float(_DOUBLE_MAX), f"{_DOUBLE_MAX} (Martlet cannot slow compaction down)"),
        "Compaction cannot be slowed down: only the default is taken.", Effect.REFUSED,
    )  # fmt: skip
    yield _changeable(
        "max.connection.creation.rate", _INT, 2**31 - 1,
        only(2**31 - 1, f"{2**31 - 1} (Martlet cannot limit how fast connections come)"),
        "How fast connections come is not limited: only the default is taken.", Effect.REFUSED,
    )  # fmt: skip
    yield _changeable(
        "max.connections.per.ip.overrides", _STRING, "",
        only("", "empty (Martlet has one limit for all addresses, max.connections.per.ip)"),
        "There is one limit for all addresses: only the empty text is taken.", Effect.REFUSED,
    )  # fmt: skip


BROKER_ROWS: Final = (
    *_FIXED,
    *(_read_only(name, type_, None, doc, only_when_set=True) for name, type_, doc in _STATED),
    *_HONOURED,
    *(_changeable(*row, Effect.NONE) for row in _WITHOUT_EFFECT),
    *_refused(),
)

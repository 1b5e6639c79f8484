"""The values in the metadata store: what is known about the cluster, its brokers, topics and partitions.

Rules: frozen data and its JSON form; no decision and no lookup lives here. Each record is one JSON object with short
self-explaining field names; fields that a reader does not know are ignored, fields that it misses take
their defaults, so brokers of neighbouring versions can share a store. `mod_revision` is where a record was read
from, never part of its bytes, and is 0 for a record that was not stored yet.

Invariants:
CLS-4 the leader of a partition is in its in-sync set, and its entry there names the process that leads;
CLS-5 a membership entry counts only for the incarnation it names: a restarted broker is out by that alone;
CLS-6 a value that cannot be read is a StorageFailure naming its key; it is never taken for "nothing there".

Proved by: tests/unit/cluster/test_cluster_records.py
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

from martlet.base.addresses import Address
from martlet.base.errors import StorageFailure
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId, format_topic_id, parse_topic_id
from martlet.cluster.keys import (
    QuotaEntity,
    read_access_key,
    read_broker_config_key,
    read_broker_key,
    read_drain_key,
    read_group_config_key,
    read_live_key,
    read_partition_index,
    read_partition_topic,
    read_quota_key,
    read_subscription_key,
    read_unfinished_key,
    read_user_key,
)
from martlet.cluster.store import Entry

T = TypeVar("T")
Record = TypeVar("Record")

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))
_AS_IT_IS: Final[Mapping[str, Any]] = {}


class Endpoint(NamedTuple):
    """Where a broker can be reached, by the name of its listener."""

    listener: str
    host: str
    port: int
    protocol: str = "plain"
    """What protects connections to it, in the words of the setting `listeners`."""

    @property
    def address(self) -> Address:
        return Address(self.host, self.port)


@dataclass(frozen=True, slots=True)
class ClusterRecord:
    """The identity of a cluster, made once."""

    cluster_id: str
    created_at_ms: int
    replica_secret: str = field(default="", repr=False)
    """What a broker shows to be let fetch as a replica; empty in clusters made before there was one."""


@dataclass(frozen=True, slots=True)
class BrokerRecord:
    """One registered broker process."""

    id: BrokerId
    incarnation: Incarnation
    """A number no other process start in this cluster has had; larger means later."""
    endpoints: tuple[Endpoint, ...] = ()
    rack: str | None = None
    clean_since: Incarnation | None = None
    """The oldest incarnation from which on it is proven that no restart lost anything; None: this one."""
    boot_id: str = ""
    started_at_ms: int = 0
    attempt: str = ""
    """What the process called its start, before it knew its incarnation; by this it knows its own registration."""
    same_logs_since: Incarnation | None = None
    """The oldest incarnation whose very log directory this is, nothing lost but what a power loss takes; None: this."""
    new_disk_since: Incarnation | None = None
    """The last incarnation that began with an empty log directory, though there had been others before; None: none."""
    unread: bool = False
    """Whether some of its logs could not be opened: it speaks for itself only, a later one for all again."""
    broker_listener: str = ""
    """The listener that other brokers connect to; empty means the first."""
    mod_revision: int = field(default=0, compare=False)

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where clients of that listener find this broker; None when it has no such listener."""
        return next((endpoint for endpoint in self.endpoints if endpoint.listener == listener), None)

    @property
    def broker_endpoint(self) -> Endpoint | None:
        """Where other brokers find this one; None when it says nothing about that."""
        return self.endpoint(self.broker_listener) or next(iter(self.endpoints), None)

    def vouches_for(self, incarnation: Incarnation) -> bool:
        """Whether this process holds everything that one of its broker's earlier starts, or itself, held."""
        first = self.incarnation if self.clean_since is None or self.unread else self.clean_since
        return first <= incarnation <= self.incarnation

    def has_logs_of(self, incarnation: Incarnation) -> bool:
        """Whether this process has the logs of that start, though perhaps without what was not flushed."""
        first = self.incarnation if self.same_logs_since is None or self.unread else self.same_logs_since
        return first <= incarnation <= self.incarnation or self.vouches_for(incarnation)

    def has_lost_disk_of(self, incarnation: Incarnation) -> bool:
        """Whether what that start of its broker held was on another disk than what it has now."""
        return self.new_disk_since is not None and incarnation < self.new_disk_since


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A broker process that is alive; its key hangs on the process's lease and goes with it."""

    broker: BrokerId
    incarnation: Incarnation
    """Kept when the same process loses its lease and gets another: losing a lease does not end a process."""
    leaving: bool = False
    """The process is about to stop and wants to lead nothing any more."""
    full: bool = False
    """The process takes no messages, because its disk is full: others should lead."""
    mod_revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class RoleRecord:
    """The process that has a role of which there is one in the cluster, for as long as its lease holds."""

    holder: Member
    mod_revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class DrainRecord:
    """A broker that an operator wants emptied: nothing new is placed on it, and what it holds is moved away."""

    broker: BrokerId
    since_ms: int = 0
    mod_revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class TopicRecord:
    """One topic; its partitions are records of their own."""

    name: str
    id: TopicId
    partition_count: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)
    """The settings that differ from the broker's, as given and checked."""
    internal: bool = False
    created_at_ms: int = 0
    mod_revision: int = field(default=0, compare=False)


class LogEnd(NamedTuple):
    """How far the log of one replica goes, by the word of the process that has it."""

    broker: BrokerId
    incarnation: Incarnation
    epoch: LeaderEpoch
    """Of its last message; -1 without any."""
    offset: int


@dataclass(frozen=True, slots=True)
class PartitionRecord:
    """Who holds a partition and who leads it; the store's `mod_revision` of it is its partition epoch."""

    topic_id: TopicId
    partition: int
    replicas: tuple[BrokerId, ...]
    leader: BrokerId | None
    leader_epoch: LeaderEpoch
    isr: tuple[Member, ...] = ()
    elr: tuple[Member, ...] = ()
    """Eligible leaders: not in sync any more, yet known to hold everything that was acknowledged."""
    last_in_sync: tuple[Member, ...] = ()
    """Who was in sync or eligible before and is not any more; who left last comes first."""
    adding: tuple[BrokerId, ...] = ()
    removing: tuple[BrokerId, ...] = ()
    log_ends: tuple[LogEnd, ...] = ()
    """Only while there is no leader and no complete replica alive: see `log_ends.py`."""
    mod_revision: int = field(default=0, compare=False)

    def isr_ids(self) -> list[int]:
        """The in-sync set as clients see it."""
        return [member.broker for member in self.isr]

    @property
    def leader_incarnation(self) -> Incarnation | None:
        """Which process start of the leader was elected (CLS-4)."""
        for member in self.isr:
            if member.broker == self.leader:
                return member.incarnation
        return None

    def is_led_by(self, broker: BrokerId, incarnation: Incarnation) -> bool:
        """Whether exactly this process was elected; leadership never outlives the process."""
        return self.leader == broker and self.leader_incarnation == incarnation


@dataclass(frozen=True, slots=True)
class UnfinishedRecord:
    """The intent to make a topic in several commits; a broker that finds its maker gone removes what was written."""

    topic_id: TopicId
    name: str
    maker: Member
    mod_revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class ConfigRecord:
    """Settings changed at run time for one broker, or for all of them when `broker` is None."""

    broker: BrokerId | None
    configs: Mapping[str, str] = field(default_factory=dict)
    mod_revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class GroupConfigRecord:
    """What one group sets itself."""

    group: str
    configs: Mapping[str, str] = field(default_factory=dict)
    mod_revision: int = field(default=0, compare=False)


class AccessRule(NamedTuple):
    """Who may, or must not, do what from where, as words: what they mean is not known here."""

    principal: str
    host: str
    operation: str
    permission: str


@dataclass(frozen=True, slots=True)
class AccessRecord:
    """The access rules of one resource pattern: kind, match and name."""

    pattern: tuple[str, str, str]
    rules: tuple[AccessRule, ...] = ()
    mod_revision: int = field(default=0, compare=False)


class StoredCredential(NamedTuple):
    """What proves that a user knows a password; bytes in base64."""

    salt: str
    iterations: int
    stored_key: str
    server_key: str

    def __repr__(self) -> str:
        return f"StoredCredential(iterations={self.iterations})"


@dataclass(frozen=True, slots=True)
class UserRecord:
    """One user, with a credential for each mechanism by its name."""

    name: str
    credentials: Mapping[str, StoredCredential] = field(default_factory=dict)
    mod_revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """What one entity may use, by the names of the quotas."""

    entity: QuotaEntity
    limits: Mapping[str, float] = field(default_factory=dict)
    mod_revision: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class SubscriptionRecord:
    """A work queue over topics: one state in each of their partitions. What its settings mean is not known here."""

    name: str
    id: str
    """Its own from all others of that name, earlier ones included: state is kept under it."""
    topics: tuple[str, ...] = ()
    patterns: tuple[str, ...] = ()
    """Names with "*" for any characters; topics that fit and are made later belong to it as well."""
    settings: Mapping[str, str] = field(default_factory=dict)
    created_at_ms: int = 0
    is_paused: bool = False
    mod_revision: int = field(default=0, compare=False)


# --- the JSON form


def encode_record(record: object) -> bytes:
    """The bytes that the store keeps of a record."""
    return _ENCODER.encode(_FORMS[type(record)].written(record)).encode()


def decode_record(kind: type[Record], entry: Entry) -> Record:
    """The record of this kind that the store keeps under the entry's key."""
    form: _Form[Record] = _FORMS[kind]
    return _read(entry, lambda value: form.read(entry, value))


def encode_counter(next_number: int) -> bytes:
    return str(next_number).encode()


def decode_counter(entry: Entry | None) -> int:
    """The next number to give away; 0 for a counter that was never used."""
    return 0 if entry is None else _read(entry, int)


def _read(entry: Entry, build: Callable[[Any], T]) -> T:
    try:
        return build(json.loads(str(entry.value, "utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageFailure(
            f"the metadata under {entry.key!r} cannot be read ({type(error).__name__}: {error}); "
            "it was written by another version or is damaged"
        ) from error


class _Form(Generic[Record]):
    """One kind of record: what its key says, and its other fields, under their own names and as they are by default.

    A field with a default may be missing, and one without is a TypeError then. A rare one is not written while it is
    false or empty: there may be a hundred thousand partitions.
    """

    def __init__(
        self,
        kind: type[Record],
        key: Mapping[str, Callable[[str], Any]],
        *,
        names: Mapping[str, str] = _AS_IT_IS,
        read: Mapping[str, Callable[[Any], Any]] = _AS_IT_IS,
        write: Mapping[str, Callable[[Any], Any]] = _AS_IT_IS,
        rare: Collection[str] = (),
    ) -> None:
        self.kind = kind
        self._key = tuple(key.items())
        declared = fields(cast("Any", kind))
        stored = [each.name for each in declared if each.name not in key and each.name != "mod_revision"]
        self._has_revision = len(stored) + len(key) < len(declared)
        self._writers = [(name, names.get(name, name), write.get(name), name in rare) for name in stored]
        self._readers = {names.get(name, name): (name, read.get(name)) for name in stored}

    def written(self, record: object) -> dict[str, Any]:
        value = {}
        for attribute, name, write, is_rare in self._writers:
            content = getattr(record, attribute)
            if content or not is_rare:
                value[name] = content if write is None else write(content)
        return value

    def read(self, entry: Entry, value: Any) -> Record:
        found = {attribute: read(entry.key) for attribute, read in self._key}
        for name, content in value.items():
            if reader := self._readers.get(name):
                attribute, read = reader
                found[attribute] = content if read is None else read(content)
        if self._has_revision:
            found["mod_revision"] = entry.mod_revision
        return self.kind(**found)


def _broker_or_none(value: Any) -> BrokerId | None:
    return None if value is None else BrokerId(int(value))


def _endpoints(values: Sequence[Sequence[Any]]) -> tuple[Endpoint, ...]:
    return tuple([Endpoint(*value[:4]) for value in values])


def _member(pair: Sequence[int]) -> Member:
    broker, incarnation = pair
    return Member(BrokerId(broker), Incarnation(incarnation))


def _members(pairs: Sequence[Sequence[int]]) -> tuple[Member, ...]:
    return tuple([Member(BrokerId(broker), Incarnation(incarnation)) for broker, incarnation in pairs])


def _log_ends(values: Sequence[Sequence[int]]) -> tuple[LogEnd, ...]:
    return tuple(
        [
            LogEnd(BrokerId(broker), Incarnation(incarnation), LeaderEpoch(epoch), offset)
            for broker, incarnation, epoch, offset in values
        ]
    )


def _access_rules(values: Sequence[Sequence[str]]) -> tuple[AccessRule, ...]:
    return tuple([AccessRule(*value) for value in values])


def _credentials(values: Mapping[str, Sequence[Any]]) -> dict[str, StoredCredential]:
    return {mechanism: StoredCredential(*value) for mechanism, value in values.items()}


_FORMS: Final[Mapping[type, _Form[Any]]] = {
    form.kind: form
    for form in (
        _Form(ClusterRecord, {}, names={"cluster_id": "id"}, read={"replica_secret": str}, rare={"replica_secret"}),
        _Form(
            BrokerRecord,
            {"id": read_broker_key},
            read={"incarnation": int, "endpoints": _endpoints, "attempt": str, "unread": bool, "broker_listener": str},
        ),
        _Form(
            LiveRecord,
            {"broker": read_live_key},
            read={"incarnation": int, "leaving": bool, "full": bool},
            rare={"full"},
        ),
        _Form(RoleRecord, {}, read={"holder": _member}),
        _Form(DrainRecord, {"broker": read_drain_key}, read={"since_ms": int}),
        _Form(
            TopicRecord,
            {},
            names={"partition_count": "partitions"},
            read={"id": parse_topic_id, "partition_count": int, "replication_factor": int},
            write={"id": format_topic_id, "configs": dict},
        ),
        _Form(
            PartitionRecord,
            {"topic_id": read_partition_topic, "partition": read_partition_index},
            read={
                "replicas": tuple,
                "leader": _broker_or_none,
                "leader_epoch": int,
                **dict.fromkeys(("isr", "elr", "last_in_sync"), _members),
                **dict.fromkeys(("adding", "removing"), tuple),
                "log_ends": _log_ends,
            },
            rare={"elr", "last_in_sync", "adding", "removing", "log_ends"},
        ),
        _Form(UnfinishedRecord, {"topic_id": read_unfinished_key}, read={"maker": _member}),
        _Form(ConfigRecord, {"broker": read_broker_config_key}, write={"configs": dict}),
        _Form(GroupConfigRecord, {"group": read_group_config_key}, write={"configs": dict}),
        _Form(AccessRecord, {"pattern": read_access_key}, read={"rules": _access_rules}),
        _Form(UserRecord, {"name": read_user_key}, read={"credentials": _credentials}, write={"credentials": dict}),
        _Form(QuotaRecord, {"entity": read_quota_key}, write={"limits": dict}),
        _Form(
            SubscriptionRecord,
            {"name": read_subscription_key},
            names={"is_paused": "paused"},
            read={"topics": tuple, "patterns": tuple, "created_at_ms": int, "is_paused": bool},
            write={"settings": dict},
            rare={"patterns", "is_paused"},
        ),
    )
}

"""The values in the metadata store: what is known about the cluster, its brokers, topics and partitions.

Rules: frozen data and its JSON form; no decision and no lookup lives here. Each record is one JSON object with short
self-explaining field names; fields that a reader does not know are ignored, fields that it misses take
their defaults, so brokers of neighbouring versions can share a store. `mod_revision` is where a record was read
from, never part of its bytes, and is 0 for a record that was not stored yet.

Invariants:
R1 the leader of a partition is in its in-sync set, and its entry there names the process that leads;
R2 a membership entry counts only for the incarnation it names: a restarted broker is out by that alone;
R3 a value that cannot be read is a StorageFailure naming its key; it is never taken for "nothing there".

Proved by: tests/unit/cluster/test_cluster_records.py
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeVar

from martlet.base.addresses import Address
from martlet.base.errors import StorageFailure
from martlet.base.ids import BrokerId, Incarnation, LeaderEpoch, Member, TopicId, format_topic_id, parse_topic_id
from martlet.cluster.keys import (
    read_broker_config_key,
    read_broker_key,
    read_drain_key,
    read_group_config_key,
    read_live_key,
    read_partition_key,
    read_unfinished_key,
)
from martlet.cluster.store import Entry

T = TypeVar("T")

_ENCODER: Final = json.JSONEncoder(separators=(",", ":"))


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
    """A broker that somebody wants emptied: nothing new is placed on it, and what it holds is moved away."""

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
    """Only while nobody leads and nobody complete is alive: see `log_ends.py`."""
    mod_revision: int = field(default=0, compare=False)

    def isr_ids(self) -> list[int]:
        """The in-sync set as clients see it."""
        return [member.broker for member in self.isr]

    @property
    def leader_incarnation(self) -> Incarnation | None:
        """Which process start of the leader was elected (R1)."""
        for member in self.isr:
            if member.broker == self.leader:
                return member.incarnation
        return None

    def is_led_by(self, broker: BrokerId, incarnation: Incarnation) -> bool:
        """Whether exactly this process was elected; leadership never outlives the process."""
        return self.leader == broker and self.leader_incarnation == incarnation


@dataclass(frozen=True, slots=True)
class UnfinishedRecord:
    """The intent to make a topic in several commits; whoever finds its maker gone removes what was written."""

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


# --- writing


def encode_cluster(record: ClusterRecord) -> bytes:
    value = {"id": record.cluster_id, "created_at_ms": record.created_at_ms}
    if record.replica_secret:
        value["replica_secret"] = record.replica_secret
    return _write(value)


def encode_broker(record: BrokerRecord) -> bytes:
    return _write(
        {
            "incarnation": record.incarnation,
            "endpoints": record.endpoints,
            "broker_listener": record.broker_listener,
            "rack": record.rack,
            "clean_since": record.clean_since,
            "boot_id": record.boot_id,
            "started_at_ms": record.started_at_ms,
            "attempt": record.attempt,
            "same_logs_since": record.same_logs_since,
            "new_disk_since": record.new_disk_since,
            "unread": record.unread,
        }
    )


def encode_live(record: LiveRecord) -> bytes:
    value = {"incarnation": record.incarnation, "leaving": record.leaving}
    return _write({**value, "full": True} if record.full else value)


def encode_role(record: RoleRecord) -> bytes:
    return _write({"holder": record.holder})


def encode_drain(record: DrainRecord) -> bytes:
    return _write({"since_ms": record.since_ms})


def encode_topic(record: TopicRecord) -> bytes:
    return _write(
        {
            "name": record.name,
            "id": format_topic_id(record.id),
            "partitions": record.partition_count,
            "replication_factor": record.replication_factor,
            "configs": dict(record.configs),
            "internal": record.internal,
            "created_at_ms": record.created_at_ms,
        }
    )


def encode_partition(record: PartitionRecord) -> bytes:
    value: dict[str, Any] = {
        "replicas": record.replicas,
        "leader": record.leader,
        "leader_epoch": record.leader_epoch,
        "isr": record.isr,
    }
    # Rare fields are left out: there may be a hundred thousand of these.
    for name in ("elr", "last_in_sync", "adding", "removing", "log_ends"):
        if members := getattr(record, name):
            value[name] = members
    return _write(value)


def encode_unfinished(record: UnfinishedRecord) -> bytes:
    return _write({"name": record.name, "maker": record.maker})


def encode_configs(record: ConfigRecord | GroupConfigRecord) -> bytes:
    return _write({"configs": dict(record.configs)})


def encode_counter(next_number: int) -> bytes:
    return str(next_number).encode()


# --- reading


def decode_cluster(entry: Entry) -> ClusterRecord:
    return _read(
        entry,
        lambda value: ClusterRecord(value["id"], value.get("created_at_ms", 0), str(value.get("replica_secret", ""))),
    )


def decode_broker(entry: Entry) -> BrokerRecord:
    return _read(
        entry,
        lambda value: BrokerRecord(
            id=read_broker_key(entry.key),
            incarnation=Incarnation(int(value["incarnation"])),
            endpoints=tuple(Endpoint(*endpoint[:4]) for endpoint in value.get("endpoints", ())),
            broker_listener=str(value.get("broker_listener", "")),
            rack=value.get("rack"),
            clean_since=value.get("clean_since"),
            boot_id=value.get("boot_id", ""),
            started_at_ms=value.get("started_at_ms", 0),
            attempt=str(value.get("attempt", "")),
            same_logs_since=value.get("same_logs_since"),
            new_disk_since=value.get("new_disk_since"),
            unread=bool(value.get("unread", False)),
            mod_revision=entry.mod_revision,
        ),
    )


def decode_live(entry: Entry) -> LiveRecord:
    return _read(
        entry,
        lambda value: LiveRecord(
            read_live_key(entry.key),
            Incarnation(int(value["incarnation"])),
            bool(value.get("leaving", False)),
            bool(value.get("full", False)),
            entry.mod_revision,
        ),
    )


def decode_role(entry: Entry) -> RoleRecord:
    return _read(entry, lambda value: RoleRecord(_members([value["holder"]])[0], entry.mod_revision))


def decode_drain(entry: Entry) -> DrainRecord:
    return _read(
        entry, lambda value: DrainRecord(read_drain_key(entry.key), int(value.get("since_ms", 0)), entry.mod_revision)
    )


def decode_topic(entry: Entry) -> TopicRecord:
    return _read(
        entry,
        lambda value: TopicRecord(
            name=value["name"],
            id=parse_topic_id(value["id"]),
            partition_count=int(value["partitions"]),
            replication_factor=int(value["replication_factor"]),
            configs=value.get("configs", {}),
            internal=value.get("internal", False),
            created_at_ms=value.get("created_at_ms", 0),
            mod_revision=entry.mod_revision,
        ),
    )


def decode_partition(entry: Entry) -> PartitionRecord:
    return _read(entry, lambda value: _partition(entry, value))


def decode_unfinished(entry: Entry) -> UnfinishedRecord:
    return _read(
        entry,
        lambda value: UnfinishedRecord(
            read_unfinished_key(entry.key), value["name"], Member(*value["maker"]), entry.mod_revision
        ),
    )


def decode_configs(entry: Entry) -> ConfigRecord:
    return _read(
        entry,
        lambda value: ConfigRecord(read_broker_config_key(entry.key), value.get("configs", {}), entry.mod_revision),
    )


def decode_group_configs(entry: Entry) -> GroupConfigRecord:
    return _read(
        entry,
        lambda value: GroupConfigRecord(read_group_config_key(entry.key), value.get("configs", {}), entry.mod_revision),
    )


def decode_counter(entry: Entry | None) -> int:
    """The next number to give away; 0 for a counter that was never used."""
    return 0 if entry is None else _read(entry, int)


def _partition(entry: Entry, value: dict[str, Any]) -> PartitionRecord:
    topic_id, index = read_partition_key(entry.key)
    leader = value["leader"]
    return PartitionRecord(
        topic_id=topic_id,
        partition=index,
        replicas=tuple(value["replicas"]),
        leader=None if leader is None else BrokerId(int(leader)),
        leader_epoch=LeaderEpoch(int(value["leader_epoch"])),
        isr=_members(value["isr"]),
        elr=_members(value.get("elr", ())),
        last_in_sync=_members(value.get("last_in_sync", ())),
        adding=tuple(value.get("adding", ())),
        removing=tuple(value.get("removing", ())),
        log_ends=_log_ends(value.get("log_ends", ())),
        mod_revision=entry.mod_revision,
    )


def _members(pairs: Sequence[Sequence[int]]) -> tuple[Member, ...]:
    return tuple([Member(BrokerId(broker), Incarnation(incarnation)) for broker, incarnation in pairs])


def _log_ends(values: Sequence[Sequence[int]]) -> tuple[LogEnd, ...]:
    return tuple(
        [
            LogEnd(BrokerId(broker), Incarnation(incarnation), LeaderEpoch(epoch), offset)
            for broker, incarnation, epoch, offset in values
        ]
    )


def _write(value: dict[str, Any]) -> bytes:
    return _ENCODER.encode(value).encode()


def _read(entry: Entry, build: Callable[[Any], T]) -> T:
    try:
        return build(json.loads(str(entry.value, "utf-8")))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StorageFailure(
            f"the metadata under {entry.key!r} cannot be read ({type(error).__name__}: {error}); "
            "it was written by another version or is damaged"
        ) from error

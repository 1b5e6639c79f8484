"""The configurations of groups, and the broker's that they take their defaults and limits from: for `config_tables.py`.

Rules: data only. Martlet has classic, consumer and share groups; what Kafka lets be set for Streams groups is taken
within Kafka's limits, so that tools which prepare them do not fail, and has no effect.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from martlet.configs.definition import (
    Check,
    ConfigDef,
    ConfigType,
    Effect,
    Inherited,
    Value,
    between,
    one_of,
)

_STREAMS: Final = "There are no groups of the Streams protocol yet; Streams applications use classic groups."


class _Row(NamedTuple):
    """A number that a group may set; the broker's default is `group.` and the name."""

    name: str
    default: int
    lowest: int
    """Which the definition takes at all."""
    least: int | None
    most: int | None
    """What a broker allows, by default."""
    doc: str
    effect: Effect = Effect.HONOURED
    is_changeable: bool = False
    """Whether the broker's default can be changed at run time."""


_ROWS: Final = (
    _Row(
        "consumer.assignment.interval.ms", 0, 0, 0, 15_000,
        "Shortest time between two assignments of a consumer group; with 0, which is not Kafka's default, up to 32 "
        "members are assigned at once, and more every 200 ms.",
        is_changeable=True,
    ),
    _Row(
        "consumer.heartbeat.interval.ms", 5_000, 1, 5_000, 15_000,
        "How often members of a consumer group are asked to send a heartbeat.",
    ),
    _Row(
        "consumer.session.timeout.ms", 45_000, 1, 45_000, 60_000,
        "A member of a consumer group is removed after so long without a heartbeat.",
    ),
    _Row(
        "share.assignment.interval.ms", 1_000, 0, 0, 15_000,
        "Assignments of share groups are made with the heartbeat that calls for them.", Effect.NONE, True,
    ),
    _Row(
        "share.delivery.count.limit", 5, 2, 2, 10,
        "How often a message of a share group is delivered before it is given up.",
    ),
    _Row(
        "share.heartbeat.interval.ms", 5_000, 1, 5_000, 15_000,
        "How often members of a share group are asked to send a heartbeat.",
    ),
    _Row(
        "share.partition.max.record.locks", 2_000, 100, 100, 4_000,
        "Messages of a partition that a share group may have in flight; Martlet allows at least 10,000.",
    ),
    _Row(
        "share.record.lock.duration.ms", 30_000, 1_000, 15_000, 60_000,
        "How long a member of a share group may keep a message before it comes back.",
    ),
    _Row(
        "share.session.timeout.ms", 45_000, 1, 45_000, 60_000,
        "A member of a share group is removed after so long without a heartbeat.",
    ),
    _Row("streams.assignment.interval.ms", 1_000, 0, 0, 15_000, _STREAMS, Effect.NONE, True),
    _Row("streams.heartbeat.interval.ms", 5_000, 1, 5_000, 15_000, _STREAMS, Effect.NONE),
    _Row("streams.initial.rebalance.delay.ms", 3_000, 0, None, None, _STREAMS, Effect.NONE),
    _Row("streams.num.standby.replicas", 0, 0, None, 2, _STREAMS, Effect.NONE),
    _Row("streams.session.timeout.ms", 45_000, 1, 45_000, 60_000, _STREAMS, Effect.NONE),
)  # fmt: skip

_DURATION_PREFIX: Final = "by_duration:P"


def _offset_reset(value: Value) -> str | None:
    if value in ("earliest", "latest") or (isinstance(value, str) and value.startswith(_DURATION_PREFIX)):
        return None
    return "earliest, latest or by_duration:PnDTnHnMn.nS"


_TEXTS: Final[tuple[tuple[str, ConfigType, str, Check | None, str], ...]] = (
    (
        "share.auto.offset.reset", ConfigType.STRING, "latest", _offset_reset,
        "Where a share group begins in a partition that it has not read: earliest, latest or by_duration:PnDTnHnMn.nS.",
    ),
    (
        "share.isolation.level", ConfigType.STRING, "read_uncommitted",
        one_of("read_committed", "read_uncommitted"),
        "Whether members of a share group get messages of transactions that are open or were aborted.",
    ),
    (
        "share.renew.acknowledge.enable", ConfigType.BOOLEAN, "true", None,
        "Whether members of a share group may renew what they have leased.",
    ),
)  # fmt: skip


def limit_names(name: str) -> tuple[str, str]:
    """The broker's settings that hold the least and the greatest value a group may set."""
    kind, _, rest = name.partition(".")
    rest = rest.removeprefix("num.")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def _group_rows() -> Iterator[ConfigDef]:
    for row in _ROWS:
        yield ConfigDef(
            name=row.name,
            type=ConfigType.INT,
            default=str(row.default),
            check=between(row.lowest),
            doc=row.doc,
            inherits=(Inherited(f"group.{row.name}"),),
            effect=row.effect,
        )
    for name, type_, default, check, doc in _TEXTS:
        yield ConfigDef(name=name, type=type_, default=default, check=check, doc=doc)


def _broker_rows() -> Iterator[ConfigDef]:
    for row in _ROWS:
        yield ConfigDef(
            name=f"group.{row.name}",
            type=ConfigType.INT,
            default=str(row.default),
            check=between(row.lowest),
            doc=row.doc,
            read_only=not row.is_changeable,
            effect=row.effect,
        )
        for name, limit, word in zip(limit_names(row.name), (row.least, row.most), ("Least", "Greatest"), strict=True):
            if limit is not None:
                yield ConfigDef(
                    name=name,
                    type=ConfigType.INT,
                    default=str(limit),
                    doc=f"{word} value of {row.name} that a group may have.",
                    read_only=True,
                )


GROUP_ROWS: Final = tuple(_group_rows())
GROUP_BROKER_ROWS: Final = tuple(_broker_rows())

"""The throttle of `martlet partition move`: Kafka's settings for it, set before the copying and taken away after it.

The rate is set for all brokers of the cluster, so there is one throttle at a time. While partitions move, the same
command with another rate changes it, and with 0 takes it away; whatever ends the command that set it, the throttle
stays until then.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from martlet.base.ids import TopicPartition

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.cluster_admin import Move

_ALL_BROKERS: Final = ""


async def set_throttle(
    cluster: "Cluster",
    rate: int,
    wished: Mapping[TopicPartition, Sequence[int]],
    before: Mapping[TopicPartition, Sequence[int]],
    moving: Mapping[TopicPartition, "Move"],
) -> list[str]:
    """Slow down every copy that these moves make, or that is being made; returns the topics that name some now."""
    from martlet.client.admin import Admin, ResourceType
    from martlet.cluster.move_throttle import THROTTLED_RATE, THROTTLED_REPLICAS, name_copies

    admin = Admin(cluster)
    made = [(where, broker) for where, wish in wished.items() for broker in wish if broker not in before[where]]
    under_way = [(where, broker) for where, move in moving.items() for broker in move.adding]
    named = name_copies([*made, *under_way])
    if not named:
        return []
    for topic, text in named.items():
        await admin.alter_configs(ResourceType.TOPIC, topic, set_values={THROTTLED_REPLICAS: text})
    await admin.alter_configs(ResourceType.BROKER, _ALL_BROKERS, set_values={THROTTLED_RATE: str(rate)})
    return list(named)


async def end_throttle(cluster: "Cluster", topics: Iterable[str]) -> None:
    """Let everything go at full speed again."""
    from martlet.base.errors import ApiError, ErrorCode
    from martlet.client.admin import Admin, ResourceType
    from martlet.cluster.move_throttle import THROTTLED_RATE, THROTTLED_REPLICAS

    admin = Admin(cluster)
    await admin.alter_configs(ResourceType.BROKER, _ALL_BROKERS, set_values={}, unset=[THROTTLED_RATE])
    for topic in topics:
        try:
            await admin.alter_configs(ResourceType.TOPIC, topic, set_values={}, unset=[THROTTLED_REPLICAS])
        except ApiError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

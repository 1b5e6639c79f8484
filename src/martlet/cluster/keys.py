"""Where everything lies in the metadata store; no other module spells a key.

    cluster/id                        ClusterRecord, written once by the first broker of a new cluster
    broker/<id>                       BrokerRecord, one per registered broker; stays when the process ends
    live/<id>                         LiveRecord under the process's lease: there while the process is alive
    controller                        RoleRecord under the lease of the process that is the controller
    drain/<id>                        DrainRecord: the broker is to give all it holds to others
    topic/<folded name>               TopicRecord; "." folds to "_", so names that would collide share a key
    partition/<topic id>/<index>      PartitionRecord; exists before its topic does and counts from then on only
    unfinished/<topic id>             UnfinishedRecord: a topic too large for one commit is being made
    config/broker/<id>                ConfigRecord of one broker; `config/broker/default` is the cluster's
    config/group/<quoted id>          GroupConfigRecord of one group; absent while it sets nothing
    access/<kind>/<match>/<name>      AccessRecord: the access rules of one resource, or of all whose names begin alike
    user/<quoted name>                UserRecord of one user who proves an identity by a password
    quota/<user>/<client id>/<host>   QuotaRecord of one entity; a part is `@none`, `@default` or quoted
    subscription/<quoted name>        SubscriptionRecord: what has work queues in which topics
    counter/<name>                    a decimal number: the next one to give away

Invariant: (CLS-7) a topic that is visible has all its partitions: they are written before or with the topic record
and deleted with it.
"""

from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote, unquote

from martlet.base.ids import BrokerId, TopicId, format_topic_id, parse_topic_id

CLUSTER_KEY: Final = "cluster/id"
CONTROLLER_KEY: Final = "controller"
INCARNATION_COUNTER_KEY: Final = "counter/incarnation"
PRODUCER_ID_COUNTER_KEY: Final = "counter/producer-id"
DEFAULT_BROKER_CONFIG_KEY: Final = "config/broker/default"

BROKER_PREFIX: Final = "broker/"
LIVE_PREFIX: Final = "live/"
DRAIN_PREFIX: Final = "drain/"
TOPIC_PREFIX: Final = "topic/"
PARTITION_PREFIX: Final = "partition/"
UNFINISHED_PREFIX: Final = "unfinished/"
BROKER_CONFIG_PREFIX: Final = "config/broker/"
GROUP_CONFIG_PREFIX: Final = "config/group/"
ACCESS_PREFIX: Final = "access/"
USER_PREFIX: Final = "user/"
QUOTA_PREFIX: Final = "quota/"
SUBSCRIPTION_PREFIX: Final = "subscription/"

_NO_PART: Final = "@none"
_DEFAULT_PART: Final = "@default"

_parse_again = lru_cache(maxsize=4096)(parse_topic_id)
"""A topic's partitions come in rows of a hundred, all with the same id."""


def fold_topic_name(name: str) -> str:
    """The form in which two names that metrics systems cannot tell apart are equal."""
    return name.replace(".", "_")


def broker_key(broker: BrokerId) -> str:
    return f"{BROKER_PREFIX}{broker}"


def live_key(broker: BrokerId) -> str:
    return f"{LIVE_PREFIX}{broker}"


def drain_key(broker: BrokerId) -> str:
    return f"{DRAIN_PREFIX}{broker}"


def topic_key(name: str) -> str:
    return TOPIC_PREFIX + fold_topic_name(name)


def partition_prefix(topic_id: TopicId) -> str:
    return f"{PARTITION_PREFIX}{format_topic_id(topic_id)}/"


def partition_key(topic_id: TopicId, index: int) -> str:
    # Six digits keep partitions in order when listed.
    return f"{PARTITION_PREFIX}{format_topic_id(topic_id)}/{index:06d}"


def unfinished_key(topic_id: TopicId) -> str:
    return UNFINISHED_PREFIX + format_topic_id(topic_id)


def broker_config_key(broker: BrokerId | None) -> str:
    """The settings of one broker, or the cluster's defaults when None."""
    return DEFAULT_BROKER_CONFIG_KEY if broker is None else f"{BROKER_CONFIG_PREFIX}{broker}"


def group_config_key(group: str) -> str:
    """The settings of one group, whose id may hold any characters."""
    return GROUP_CONFIG_PREFIX + quote(group, safe="")


def access_key(kind: str, match: str, name: str) -> str:
    """The rules of one resource pattern."""
    return f"{ACCESS_PREFIX}{kind}/{match}/{quote(name, safe='')}"


def user_key(name: str) -> str:
    return USER_PREFIX + quote(name, safe="")


def subscription_key(name: str) -> str:
    return SUBSCRIPTION_PREFIX + quote(name, safe="")


class QuotaEntity(NamedTuple):
    """Whose quotas: None for a part that does not matter, "" for its default."""

    user: str | None = None
    client_id: str | None = None
    host: str | None = None


def quota_key(entity: QuotaEntity) -> str:
    return QUOTA_PREFIX + "/".join(_quota_part(part) for part in entity)


def _quota_part(part: str | None) -> str:
    if part is None:
        return _NO_PART
    return quote(part, safe="") if part else _DEFAULT_PART


def read_partition_topic(key: str) -> TopicId:
    return _parse_again(key.split("/")[1])


def read_partition_index(key: str) -> int:
    return int(key.rpartition("/")[2])


def read_unfinished_key(key: str) -> TopicId:
    return parse_topic_id(key.removeprefix(UNFINISHED_PREFIX))


def read_broker_key(key: str) -> BrokerId:
    return BrokerId(int(key.removeprefix(BROKER_PREFIX)))


def read_live_key(key: str) -> BrokerId:
    return BrokerId(int(key.removeprefix(LIVE_PREFIX)))


def read_drain_key(key: str) -> BrokerId:
    return BrokerId(int(key.removeprefix(DRAIN_PREFIX)))


def read_broker_config_key(key: str) -> BrokerId | None:
    name = key.removeprefix(BROKER_CONFIG_PREFIX)
    return None if name == "default" else BrokerId(int(name))


def read_group_config_key(key: str) -> str:
    return unquote(key.removeprefix(GROUP_CONFIG_PREFIX))


def read_access_key(key: str) -> tuple[str, str, str]:
    """Kind, match and name of a resource pattern."""
    kind, match, name = key.removeprefix(ACCESS_PREFIX).split("/")
    return kind, match, unquote(name)


def read_user_key(key: str) -> str:
    return unquote(key.removeprefix(USER_PREFIX))


def read_subscription_key(key: str) -> str:
    return unquote(key.removeprefix(SUBSCRIPTION_PREFIX))


def read_quota_key(key: str) -> QuotaEntity:
    """The entity whose quotas lie there."""
    parts = key.removeprefix(QUOTA_PREFIX).split("/")
    special = {_NO_PART: None, _DEFAULT_PART: ""}
    return QuotaEntity(*(special[part] if part in special else unquote(part) for part in parts))

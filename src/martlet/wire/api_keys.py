"""The numbers of Kafka's APIs and of our own, and the two facts about each that the header of a message depends on.

Rules: this table is data and imports nothing but the standard library, because every connection needs it before the
schemas are loaded. Which versions the broker *serves* is no business of this module; the handlers say that.

Keys 4 to 7 are missing on purpose: Kafka 4 removed them. Our own begin at 12,000, far above Kafka's (decision 0032).

Proved by: tests/unit/wire/test_api_keys.py (the table equals the schemas)
"""

from enum import IntEnum
from typing import Final, NamedTuple

FIRST_OWN_KEY: Final = 12_000
"""Kafka's keys are all below, Martlet's own from here on."""


class ApiKey(IntEnum):
    """Kafka's APIs by Kafka's names, then ours."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    OPEN_TRANSACTION_GROUP = 12_100
    END_TRANSACTION_GROUP = 12_101
    RECEIVE_MESSAGES = 12_110
    SETTLE_MESSAGES = 12_111
    ALTER_SUBSCRIPTIONS = 12_112
    DESCRIBE_SUBSCRIPTIONS = 12_113
    DESCRIBE_QUEUES = 12_114
    SEEK_QUEUE = 12_115
    WRITE_DEAD_LETTERS = 12_116


class Versions(NamedTuple):
    """A whole, contiguous range of versions of one API."""

    first: int
    last: int

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


NEVER_FLEXIBLE: Final = 1 << 15
"""Larger than any version a header can carry: the API has no flexible version."""


class ApiFacts(NamedTuple):
    """What the header of a message depends on."""

    first_flexible_version: int
    newest_version: int


API_FACTS: Final[dict[int, ApiFacts]] = {
    ApiKey.PRODUCE: ApiFacts(9, 13),
    ApiKey.FETCH: ApiFacts(12, 18),
    ApiKey.LIST_OFFSETS: ApiFacts(6, 11),
    ApiKey.METADATA: ApiFacts(9, 13),
    ApiKey.OFFSET_COMMIT: ApiFacts(8, 10),
    ApiKey.OFFSET_FETCH: ApiFacts(6, 10),
    ApiKey.FIND_COORDINATOR: ApiFacts(3, 6),
    ApiKey.JOIN_GROUP: ApiFacts(6, 9),
    ApiKey.HEARTBEAT: ApiFacts(4, 4),
    ApiKey.LEAVE_GROUP: ApiFacts(4, 5),
    ApiKey.SYNC_GROUP: ApiFacts(4, 5),
    ApiKey.DESCRIBE_GROUPS: ApiFacts(5, 6),
    ApiKey.LIST_GROUPS: ApiFacts(3, 5),
    ApiKey.SASL_HANDSHAKE: ApiFacts(NEVER_FLEXIBLE, 1),
    ApiKey.API_VERSIONS: ApiFacts(3, 4),
    ApiKey.CREATE_TOPICS: ApiFacts(5, 7),
    ApiKey.DELETE_TOPICS: ApiFacts(4, 6),
    ApiKey.DELETE_RECORDS: ApiFacts(2, 2),
    ApiKey.INIT_PRODUCER_ID: ApiFacts(2, 6),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: ApiFacts(4, 4),
    ApiKey.ADD_PARTITIONS_TO_TXN: ApiFacts(3, 5),
    ApiKey.ADD_OFFSETS_TO_TXN: ApiFacts(3, 4),
    ApiKey.END_TXN: ApiFacts(3, 5),
    ApiKey.WRITE_TXN_MARKERS: ApiFacts(1, 2),
    ApiKey.TXN_OFFSET_COMMIT: ApiFacts(3, 5),
    ApiKey.DESCRIBE_ACLS: ApiFacts(2, 3),
    ApiKey.CREATE_ACLS: ApiFacts(2, 3),
    ApiKey.DELETE_ACLS: ApiFacts(2, 3),
    ApiKey.DESCRIBE_CONFIGS: ApiFacts(4, 4),
    ApiKey.ALTER_CONFIGS: ApiFacts(2, 2),
    ApiKey.ALTER_REPLICA_LOG_DIRS: ApiFacts(2, 2),
    ApiKey.DESCRIBE_LOG_DIRS: ApiFacts(2, 5),
    ApiKey.SASL_AUTHENTICATE: ApiFacts(2, 2),
    ApiKey.CREATE_PARTITIONS: ApiFacts(2, 3),
    ApiKey.CREATE_DELEGATION_TOKEN: ApiFacts(2, 3),
    ApiKey.RENEW_DELEGATION_TOKEN: ApiFacts(2, 2),
    ApiKey.EXPIRE_DELEGATION_TOKEN: ApiFacts(2, 2),
    ApiKey.DESCRIBE_DELEGATION_TOKEN: ApiFacts(2, 3),
    ApiKey.DELETE_GROUPS: ApiFacts(2, 2),
    ApiKey.ELECT_LEADERS: ApiFacts(2, 2),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: ApiFacts(1, 1),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: ApiFacts(0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ApiFacts(0, 0),
    ApiKey.OFFSET_DELETE: ApiFacts(NEVER_FLEXIBLE, 0),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: ApiFacts(1, 1),
    ApiKey.ALTER_CLIENT_QUOTAS: ApiFacts(1, 1),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: ApiFacts(0, 0),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: ApiFacts(0, 0),
    ApiKey.VOTE: ApiFacts(0, 2),
    ApiKey.BEGIN_QUORUM_EPOCH: ApiFacts(1, 1),
    ApiKey.END_QUORUM_EPOCH: ApiFacts(1, 1),
    ApiKey.DESCRIBE_QUORUM: ApiFacts(0, 2),
    ApiKey.ALTER_PARTITION: ApiFacts(2, 3),
    ApiKey.UPDATE_FEATURES: ApiFacts(0, 2),
    ApiKey.ENVELOPE: ApiFacts(0, 0),
    ApiKey.FETCH_SNAPSHOT: ApiFacts(0, 1),
    ApiKey.DESCRIBE_CLUSTER: ApiFacts(0, 2),
    ApiKey.DESCRIBE_PRODUCERS: ApiFacts(0, 0),
    ApiKey.BROKER_REGISTRATION: ApiFacts(0, 4),
    ApiKey.BROKER_HEARTBEAT: ApiFacts(0, 2),
    ApiKey.UNREGISTER_BROKER: ApiFacts(0, 0),
    ApiKey.DESCRIBE_TRANSACTIONS: ApiFacts(0, 0),
    ApiKey.LIST_TRANSACTIONS: ApiFacts(0, 2),
    ApiKey.ALLOCATE_PRODUCER_IDS: ApiFacts(0, 0),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ApiFacts(0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: ApiFacts(0, 1),
    ApiKey.CONTROLLER_REGISTRATION: ApiFacts(0, 0),
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: ApiFacts(0, 0),
    ApiKey.PUSH_TELEMETRY: ApiFacts(0, 0),
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: ApiFacts(0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: ApiFacts(0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: ApiFacts(0, 0),
    ApiKey.SHARE_GROUP_HEARTBEAT: ApiFacts(1, 1),
    ApiKey.SHARE_GROUP_DESCRIBE: ApiFacts(1, 1),
    ApiKey.SHARE_FETCH: ApiFacts(1, 2),
    ApiKey.SHARE_ACKNOWLEDGE: ApiFacts(1, 2),
    ApiKey.ADD_RAFT_VOTER: ApiFacts(0, 1),
    ApiKey.REMOVE_RAFT_VOTER: ApiFacts(0, 0),
    ApiKey.UPDATE_RAFT_VOTER: ApiFacts(0, 0),
    ApiKey.INITIALIZE_SHARE_GROUP_STATE: ApiFacts(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE: ApiFacts(0, 0),
    ApiKey.WRITE_SHARE_GROUP_STATE: ApiFacts(0, 1),
    ApiKey.DELETE_SHARE_GROUP_STATE: ApiFacts(0, 0),
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: ApiFacts(0, 1),
    ApiKey.STREAMS_GROUP_HEARTBEAT: ApiFacts(0, 0),
    ApiKey.STREAMS_GROUP_DESCRIBE: ApiFacts(0, 0),
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: ApiFacts(0, 1),
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: ApiFacts(0, 0),
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: ApiFacts(0, 0),
    ApiKey.OPEN_TRANSACTION_GROUP: ApiFacts(0, 0),
    ApiKey.END_TRANSACTION_GROUP: ApiFacts(0, 0),
    ApiKey.RECEIVE_MESSAGES: ApiFacts(0, 0),
    ApiKey.SETTLE_MESSAGES: ApiFacts(0, 0),
    ApiKey.ALTER_SUBSCRIPTIONS: ApiFacts(0, 0),
    ApiKey.DESCRIBE_SUBSCRIPTIONS: ApiFacts(0, 0),
    ApiKey.DESCRIBE_QUEUES: ApiFacts(0, 0),
    ApiKey.SEEK_QUEUE: ApiFacts(0, 0),
    ApiKey.WRITE_DEAD_LETTERS: ApiFacts(0, 0),
}


def first_flexible_version(api_key: int) -> int:
    """The first version whose messages carry tagged fields; NEVER_FLEXIBLE when there is none or the key is unknown."""
    facts = API_FACTS.get(api_key)
    return NEVER_FLEXIBLE if facts is None else facts.first_flexible_version


def is_flexible(api_key: int, version: int) -> bool:
    """Whether this version of the API carries tagged fields; False for keys and versions that are not defined yet."""
    facts = API_FACTS.get(api_key)
    return facts is not None and facts.first_flexible_version <= version <= facts.newest_version


def api_name(api_key: int) -> str:
    """A name for logs and metrics, also for keys that are not defined."""
    try:
        return ApiKey(api_key).name
    except ValueError:
        return f"UNKNOWN_{api_key}"

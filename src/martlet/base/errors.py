"""The one table of protocol errors and the four families of exceptions, each with one fate.

    MartletError
    ├── ApiError            a protocol error code: becomes a field of the response
    ├── ProtocolViolation   the peer broke the protocol: its connection is closed
    ├── StorageFailure      the disk failed: after a failed write the process ends, a failed read costs its partition
    │   ├── DiskFull        no space: publishes are refused, reads go on, heals by itself
    │   └── DirectoryInUse  another process has the data directory: this one does not start
    └── InvariantViolation  a bug of ours: the process stops

Translation to responses happens once per edge (`broker` for Kafka, later the gateway for HTTP). Codes and
names are Kafka's; the sentences are ours.
"""

from enum import IntEnum
from typing import NamedTuple


class ErrorCode(IntEnum):
    """Kafka's error codes by Kafka's names."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INVALID_UPDATE_VERSION = 95
    UNKNOWN_TOPIC_ID = 100
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    SHARE_SESSION_LIMIT_REACHED = 133


class ErrorInfo(NamedTuple):
    """What a client may do about an error, and a sentence for people."""

    text: str
    retriable: bool
    refresh_metadata: bool


ERROR_TABLE: dict[ErrorCode, ErrorInfo] = {
    ErrorCode.UNKNOWN_SERVER_ERROR: ErrorInfo(
        "The broker met an error it did not expect; its log says more.", False, False
    ),
    ErrorCode.NONE: ErrorInfo("Success.", False, False),
    ErrorCode.OFFSET_OUT_OF_RANGE: ErrorInfo("The offset lies outside what the partition still holds.", False, False),
    ErrorCode.CORRUPT_MESSAGE: ErrorInfo("The batch's checksum or length is wrong.", True, False),
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorInfo("This broker knows no such topic or partition.", True, True),
    ErrorCode.LEADER_NOT_AVAILABLE: ErrorInfo("The partition has no leader at the moment.", True, True),
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorInfo("This broker does not lead the partition.", True, True),
    ErrorCode.REQUEST_TIMED_OUT: ErrorInfo("The request was not completed in its time.", True, False),
    ErrorCode.REPLICA_NOT_AVAILABLE: ErrorInfo("This broker holds no replica of the partition.", True, True),
    ErrorCode.MESSAGE_TOO_LARGE: ErrorInfo("The batch is larger than the topic allows.", False, False),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: ErrorInfo("The metadata of the committed offset is too long.", False, False),
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorInfo("The coordinator is still reading its log.", True, False),
    ErrorCode.COORDINATOR_NOT_AVAILABLE: ErrorInfo("There is no coordinator at the moment.", True, False),
    ErrorCode.NOT_COORDINATOR: ErrorInfo("This broker does not coordinate that key.", True, False),
    ErrorCode.INVALID_TOPIC_EXCEPTION: ErrorInfo(
        "The topic's name or the operation on it is not allowed.", False, False
    ),
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorInfo("The batch is larger than a segment.", False, False),
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorInfo("Fewer replicas are in sync than the topic demands.", True, False),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorInfo(
        "Written, but fewer replicas are in sync than the topic demands.", True, False
    ),
    ErrorCode.INVALID_REQUIRED_ACKS: ErrorInfo("acks must be -1, 0 or 1.", False, False),
    ErrorCode.ILLEGAL_GENERATION: ErrorInfo("The generation is not the group's current one.", False, False),
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: ErrorInfo("The member's protocols do not fit the group's.", False, False),
    ErrorCode.INVALID_GROUP_ID: ErrorInfo("The group's name is not allowed.", False, False),
    ErrorCode.UNKNOWN_MEMBER_ID: ErrorInfo("The group knows no such member.", False, False),
    ErrorCode.INVALID_SESSION_TIMEOUT: ErrorInfo(
        "The session timeout is outside what the broker allows.", False, False
    ),
    ErrorCode.REBALANCE_IN_PROGRESS: ErrorInfo("The group is rebalancing; join again.", False, False),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ErrorInfo("Not allowed on this topic.", False, False),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ErrorInfo("Not allowed on this group.", False, False),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ErrorInfo("Not allowed on the cluster.", False, False),
    ErrorCode.INVALID_TIMESTAMP: ErrorInfo("The message's timestamp is outside what the topic allows.", False, False),
    ErrorCode.UNSUPPORTED_SASL_MECHANISM: ErrorInfo("The broker does not offer this SASL mechanism.", False, False),
    ErrorCode.ILLEGAL_SASL_STATE: ErrorInfo("The request does not fit the state of the authentication.", False, False),
    ErrorCode.UNSUPPORTED_VERSION: ErrorInfo("The broker does not speak this version of the request.", False, False),
    ErrorCode.TOPIC_ALREADY_EXISTS: ErrorInfo("A topic of this name exists.", False, False),
    ErrorCode.INVALID_PARTITIONS: ErrorInfo("The number of partitions is not allowed.", False, False),
    ErrorCode.INVALID_REPLICATION_FACTOR: ErrorInfo("The replication factor is not allowed.", False, False),
    ErrorCode.INVALID_REPLICA_ASSIGNMENT: ErrorInfo("The replica assignment is not allowed.", False, False),
    ErrorCode.INVALID_CONFIG: ErrorInfo("The configuration is not allowed.", False, False),
    ErrorCode.NOT_CONTROLLER: ErrorInfo("This broker does not take administrative requests at the moment.", True, True),
    ErrorCode.INVALID_REQUEST: ErrorInfo("The request contradicts itself or the protocol.", False, False),
    ErrorCode.POLICY_VIOLATION: ErrorInfo("A policy of the cluster forbids it.", False, False),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: ErrorInfo(
        "A batch of this producer is missing before this one.", False, False
    ),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: ErrorInfo("The batch was written before.", False, False),
    ErrorCode.INVALID_PRODUCER_EPOCH: ErrorInfo("A newer instance of this producer has taken over.", False, False),
    ErrorCode.INVALID_TXN_STATE: ErrorInfo("The transaction is not in a state that allows this.", False, False),
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: ErrorInfo(
        "The producer id does not belong to the transactional id.", False, False
    ),
    ErrorCode.INVALID_TRANSACTION_TIMEOUT: ErrorInfo(
        "The transaction timeout is longer than the broker allows.", False, False
    ),
    ErrorCode.CONCURRENT_TRANSACTIONS: ErrorInfo("The previous transaction is still being ended.", True, False),
    ErrorCode.TRANSACTION_COORDINATOR_FENCED: ErrorInfo("A newer coordinator has taken over.", False, False),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ErrorInfo("Not allowed for this transactional id.", False, False),
    ErrorCode.SECURITY_DISABLED: ErrorInfo("The broker runs without security features.", False, False),
    ErrorCode.OPERATION_NOT_ATTEMPTED: ErrorInfo(
        "Not tried, because another part of the request failed.", False, False
    ),
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorInfo("The broker could not use its disk.", True, True),
    ErrorCode.LOG_DIR_NOT_FOUND: ErrorInfo("The broker has no such log directory.", False, False),
    ErrorCode.SASL_AUTHENTICATION_FAILED: ErrorInfo("The credentials were refused.", False, False),
    ErrorCode.UNKNOWN_PRODUCER_ID: ErrorInfo("The broker knows no such producer.", False, False),
    ErrorCode.REASSIGNMENT_IN_PROGRESS: ErrorInfo("The partition is being moved.", False, False),
    ErrorCode.NON_EMPTY_GROUP: ErrorInfo("The group still has members.", False, False),
    ErrorCode.GROUP_ID_NOT_FOUND: ErrorInfo("There is no such group.", False, False),
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND: ErrorInfo("The broker knows no such fetch session.", True, False),
    ErrorCode.INVALID_FETCH_SESSION_EPOCH: ErrorInfo("The fetch session is at another epoch.", True, False),
    ErrorCode.LISTENER_NOT_FOUND: ErrorInfo("The leader does not serve this listener.", True, True),
    ErrorCode.TOPIC_DELETION_DISABLED: ErrorInfo("Deleting topics is switched off.", False, False),
    ErrorCode.FENCED_LEADER_EPOCH: ErrorInfo("The request's leader epoch is older than the partition's.", True, True),
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorInfo("The request's leader epoch is newer than the partition's.", True, True),
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: ErrorInfo(
        "This version of the request cannot carry that compression.", False, False
    ),
    ErrorCode.STALE_BROKER_EPOCH: ErrorInfo("The broker has been registered again.", False, False),
    ErrorCode.OFFSET_NOT_AVAILABLE: ErrorInfo("A new leader does not know the latest offset yet.", True, False),
    ErrorCode.MEMBER_ID_REQUIRED: ErrorInfo("Join again with the member id given.", False, False),
    ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE: ErrorInfo("The preferred leader is not available.", True, False),
    ErrorCode.GROUP_MAX_SIZE_REACHED: ErrorInfo("The group is full.", False, False),
    ErrorCode.FENCED_INSTANCE_ID: ErrorInfo("Another member has taken this instance id.", False, False),
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE: ErrorInfo("No replica may lead.", True, True),
    ErrorCode.ELECTION_NOT_NEEDED: ErrorInfo("The partition has the leader it should have.", True, True),
    ErrorCode.NO_REASSIGNMENT_IN_PROGRESS: ErrorInfo("No move is under way.", False, False),
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: ErrorInfo("The group is subscribed to the topic.", False, False),
    ErrorCode.INVALID_RECORD: ErrorInfo("The batch or one of its records breaks the format's rules.", False, False),
    ErrorCode.UNSTABLE_OFFSET_COMMIT: ErrorInfo("A transaction still holds this offset.", True, False),
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: ErrorInfo("The quota is used up for now.", True, False),
    ErrorCode.PRODUCER_FENCED: ErrorInfo("A newer instance of this producer has taken over.", False, False),
    ErrorCode.RESOURCE_NOT_FOUND: ErrorInfo("There is no such resource.", False, False),
    ErrorCode.DUPLICATE_RESOURCE: ErrorInfo("The resource exists already or is named twice.", False, False),
    ErrorCode.UNACCEPTABLE_CREDENTIAL: ErrorInfo("The credential does not meet the rules.", False, False),
    ErrorCode.INVALID_UPDATE_VERSION: ErrorInfo("The feature cannot run at this level.", False, False),
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorInfo("This broker knows no topic of this id.", True, True),
    ErrorCode.BROKER_ID_NOT_REGISTERED: ErrorInfo("There is no broker with this id.", False, False),
    ErrorCode.INCONSISTENT_TOPIC_ID: ErrorInfo("The topic id is not the one on disk.", True, True),
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: ErrorInfo("There is no such transactional id.", False, False),
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR: ErrorInfo(
        "The fetch session mixed topic names and topic ids.", True, False
    ),
    ErrorCode.FENCED_MEMBER_EPOCH: ErrorInfo("The member's epoch has been fenced; join again.", False, False),
    ErrorCode.UNRELEASED_INSTANCE_ID: ErrorInfo("The instance id is still in use.", False, False),
    ErrorCode.UNSUPPORTED_ASSIGNOR: ErrorInfo("The broker does not know this assignor.", False, False),
    ErrorCode.STALE_MEMBER_EPOCH: ErrorInfo("The member's epoch is old; heartbeat and try again.", False, False),
    ErrorCode.MISMATCHED_ENDPOINT_TYPE: ErrorInfo("The request was sent to the wrong kind of endpoint.", False, False),
    ErrorCode.UNSUPPORTED_ENDPOINT_TYPE: ErrorInfo("The broker does not know this kind of endpoint.", False, False),
    ErrorCode.TRANSACTION_ABORTABLE: ErrorInfo("The transaction can only be aborted.", False, False),
    ErrorCode.INVALID_RECORD_STATE: ErrorInfo("The record is not in a state that allows this.", False, False),
    ErrorCode.SHARE_SESSION_NOT_FOUND: ErrorInfo("The broker knows no such share session.", True, False),
    ErrorCode.INVALID_SHARE_SESSION_EPOCH: ErrorInfo("The share session is at another epoch.", True, False),
    ErrorCode.FENCED_STATE_EPOCH: ErrorInfo("The share group's state has moved on.", False, False),
    ErrorCode.INVALID_REGULAR_EXPRESSION: ErrorInfo("The regular expression is not valid.", False, False),
    ErrorCode.REBOOTSTRAP_REQUIRED: ErrorInfo("The client must start from its bootstrap servers again.", False, False),
    ErrorCode.SHARE_SESSION_LIMIT_REACHED: ErrorInfo("The broker holds as many share sessions as it may.", True, False),
}


class MartletError(Exception):
    """Root of everything Martlet raises on purpose."""


class ApiError(MartletError):
    """A request cannot be served; carries the protocol's code and a sentence naming what was wrong."""

    def __init__(self, code: ErrorCode, detail: str = "") -> None:
        super().__init__(detail or ERROR_TABLE[code].text)
        self.code = code
        self.detail = detail or ERROR_TABLE[code].text

    @property
    def retriable(self) -> bool:
        return ERROR_TABLE[self.code].retriable


class ProtocolViolation(MartletError):
    """The peer sent bytes that no version of the protocol allows; the connection cannot go on."""


class StorageFailure(MartletError):
    """Reading or writing the disk failed; what is on it past the last sync is unknown."""


class LogDamaged(StorageFailure):
    """What a log holds is not what was written to it; the device works, these bytes are wrong."""


class DiskFull(StorageFailure):
    """The device has no space left; the write did not happen."""


class DirectoryInUse(StorageFailure):
    """Another process works in the directory; two would destroy each other's data."""


class MembershipRefused(MartletError):
    """This process cannot be, or no longer be, the broker it was started as: another process is, or has the data."""


class InvariantViolation(MartletError):
    """Something that must always be true is not; continuing would make it worse."""


def error_code(value: int) -> ErrorCode:
    """The code for a number from the wire; a number we do not know reads as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(value)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR

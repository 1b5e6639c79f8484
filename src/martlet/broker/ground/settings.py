"""Everything an operator can set for one broker process, with its default and one sentence of explanation.

Only the values live here. Where a value came from (flag, environment, file, default) is the business of
`martlet.cli`; what a topic may override is in `martlet.configs.effective`.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the value of a setting may be, besides the type of its default."""

    at_least: int = 0
    not_more_than: str = ""
    """Another setting, which this one must not exceed."""
    one_of: tuple[str, ...] = ()
    is_address: bool = False
    """Whether it is HOST:PORT, where the default gives the port that may be left out."""


def setting(
    default: Any,
    help_text: str,
    *,
    at_least: int = 0,
    not_more_than: str = "",
    one_of: tuple[str, ...] = (),
    is_address: bool = False,
) -> Any:
    """A dataclass field that carries its explanation for `martlet config show` and `--help`, and its bounds.

    A text may be empty where its default is.
    """
    bounds = Bounds(at_least, not_more_than, one_of, is_address)
    return field(default=default, metadata={"help": help_text, "bounds": bounds})


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerSettings:
    """One broker's settings; names are the keys in `martlet.toml` and, upper-cased, in `MARTLET_*`."""

    data: str = setting("./martlet-data", "directory for messages and metadata")
    kafka: str = setting(
        "127.0.0.1:9092", "address that serves the Kafka protocol; port 0 takes any free port", is_address=True
    )
    operations: str = setting(
        "127.0.0.1:9644", "address of /healthz, /readyz and /metrics; port 0 takes any free port", is_address=True
    )
    listeners: str = setting(
        "",
        "named listeners in place of `kafka`, NAME=PROTOCOL://HOST:PORT by commas: plain, tls, sasl_plain, sasl_tls",
    )
    broker_listener: str = setting("", "the listener that other brokers connect to; empty means the first")
    advertised: str = setting(
        "", "address given to clients, HOST:PORT, or NAME=HOST:PORT by commas; empty means the one they connected to"
    )
    insecure_listen: str = setting(
        "", "names of listeners that may let in anybody from other machines, by commas; none does otherwise"
    )
    tls_cert: str = setting("", "file with the certificate of tls listeners, and those that sign it")
    tls_key: str = setting("", "file with the key of that certificate, readable by nobody else")
    tls_ca: str = setting("", "file with the authorities that clients and other brokers are checked against")
    tls_client_auth: str = setting(
        "none",
        "whether clients of tls listeners show a certificate: none, requested or required",
        one_of=("none", "requested", "required"),
    )
    tls_principal: str = setting(
        "dn",
        "what in a client's certificate names it: dn, cn, san_dns or san_uri",
        one_of=("dn", "cn", "san_dns", "san_uri"),
    )
    sasl_mechanisms: str = setting(
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "how clients of sasl listeners prove who they are, by commas: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN (tls only)",
    )
    sasl_session_ms: int = setting(
        0, "a client of a sasl listener must prove again who it is after this time; 0 means as long as it is connected"
    )
    access_rules: bool = setting(False, "allow clients only what access rules allow them, and nothing without one")
    super_users: str = setting("", "principals that may do everything whatever the rules say, User:NAME by semicolons")
    broker_id: int = setting(1, "number of this broker, unique in its cluster")
    metadata: str = setting("", "metadata store, etcd://HOST:PORT[,HOST:PORT…][/PREFIX]; empty means a file in `data`")
    metadata_user: str = setting("", "user at the metadata store; empty means none")
    metadata_password_file: str = setting("", "file with the password of that user")
    metadata_ca: str = setting("", "file with the authorities that the metadata store's certificate is checked against")
    metadata_cert: str = setting("", "file with the certificate shown to the metadata store")
    metadata_key: str = setting("", "file with the key of that certificate")
    lease_ms: int = setting(
        6_000, "a broker that the metadata store has not heard of for this time is replaced", at_least=2_000
    )
    rack: str = setting("", "failure zone of this broker")
    auto_create_topics: bool = setting(True, "create a topic when a client first names it")
    default_partitions: int = setting(1, "partitions of a topic created without a number", at_least=1)
    default_replication_factor: int = setting(1, "replicas of a topic created without a number", at_least=1)
    offsets_topic_replication_factor: int = setting(
        3, "replicas of __consumer_offsets; as many as there are brokers if those are fewer", at_least=1
    )
    replica_lag_time_max_ms: int = setting(
        30_000, "a follower that has not caught up for this time is out of sync", at_least=1
    )
    replica_lag_messages_max: int = setting(0, "a follower that lags by more messages is out of sync; 0 means no limit")
    replica_fetch_wait_ms: int = setting(500, "time a follower's fetch waits for new messages")
    replica_fetch_bytes_max: int = setting(10_485_760, "bytes a follower asks for at once", at_least=1)
    replica_throttle_bytes: int = setting(
        0, "bytes per second with which replicas that are not in sync catch up; 0 means no limit"
    )
    leader_imbalance_percent: int = setting(
        10, "share of the leaderships meant for a broker that may be elsewhere before they are brought back"
    )
    leader_balance_interval_ms: int = setting(300_000, "time between checks for such leaderships; 0 means never")
    connections_max: int = setting(10_000, "connections served at once", at_least=1)
    connections_per_address_max: int = setting(10_000, "connections served at once from one address", at_least=1)
    idle_timeout_ms: int = setting(600_000, "a connection without requests is closed after this time")
    receive_timeout_ms: int = setting(30_000, "time a client has to send one whole request (more for large ones)")
    request_bytes_max: int = setting(104_857_600, "largest request accepted", at_least=1)
    in_flight_bytes_max: int = setting(
        536_870_912, "bytes of requests held in memory over all connections before reading pauses"
    )
    in_flight_requests_max: int = setting(
        64, "requests of one connection being worked on before reading from it pauses"
    )
    write_buffer_bytes_max: int = setting(67_108_864, "unsent answer bytes of one connection before its requests wait")
    stalled_write_timeout_ms: int = setting(
        60_000, "a client that reads nothing for this time while answers wait is cut off"
    )
    fetch_bytes_max: int = setting(57_671_680, "largest answer to one fetch")
    flush_interval_ms: int = setting(1_000, "time between flushes for topics with martlet.flush=interval")
    flush_messages: int = setting(10_000, "messages between flushes for topics with martlet.flush=messages")
    scrub_bytes_per_second: int = setting(
        20 * 1024 * 1024, "how fast what earlier runs wrote is checked for damage in the background; 0 for not at all"
    )
    scrub_interval_ms: int = setting(
        604_800_000, "time after which all that is on disk is checked for damage again; 0 for only once after a start"
    )
    checkpoint_interval_ms: int = setting(5_000, "time between writes of the recovery points")
    retention_check_interval_ms: int = setting(300_000, "time between checks for segments to delete")
    cleaner_interval_ms: int = setting(15_000, "time between checks for segments to compact")
    disk_reserve_bytes: int = setting(67_108_864, "free space below which publishes are refused with a retriable error")
    shutdown_timeout_ms: int = setting(10_000, "time given to open requests when the broker stops")
    group_initial_rebalance_delay_ms: int = setting(
        500, "time an empty group waits for more members before its first assignment"
    )
    group_max_size: int = setting(5_000, "members of one group of the classic protocol", at_least=1)
    group_min_session_timeout_ms: int = setting(
        6_000, "shortest session timeout a member may ask for", not_more_than="group_max_session_timeout_ms"
    )
    group_max_session_timeout_ms: int = setting(1_800_000, "longest session timeout a member may ask for", at_least=1)
    consumer_group_max_size: int = setting(5_000, "members of one group of the consumer protocol (KIP-848)", at_least=1)
    consumer_group_session_timeout_ms: int = setting(
        45_000, "a member of the consumer protocol is removed after this time without a heartbeat", at_least=1
    )
    consumer_group_heartbeat_interval_ms: int = setting(
        5_000,
        "how often members of the consumer protocol are asked to send a heartbeat",
        at_least=1,
        not_more_than="consumer_group_session_timeout_ms",
    )
    offset_metadata_max: int = setting(4_096, "characters of the text a client may store with an offset")
    offsets_retention_minutes: int = setting(
        10_080, "committed offsets are kept this long after their group is empty", at_least=1
    )
    offsets_topic_partitions: int = setting(
        50, "partitions of __consumer_offsets, fixed when it is first needed", at_least=1
    )
    transactions_topic_partitions: int = setting(
        50, "partitions of __transaction_state, fixed when it is first needed", at_least=1
    )
    transactions_topic_replication_factor: int = setting(
        3, "replicas of __transaction_state; as many as there are brokers if those are fewer", at_least=1
    )
    transaction_max_timeout_ms: int = setting(
        900_000, "longest time a producer may ask for before its open transaction is aborted", at_least=1
    )
    transaction_partitions_max: int = setting(10_000, "partitions of one transaction", at_least=1)
    transactional_id_expiration_ms: int = setting(
        604_800_000, "a transactional id is forgotten when it was not used for so long", at_least=1
    )
    transaction_two_phase_commit: bool = setting(
        False, "let producers keep prepared transactions open without a time limit, to be ended from elsewhere"
    )
    coordinator_snapshot_min_bytes: int = setting(
        4 << 20, "the history of a coordinator's partition is dropped once it is longer and a snapshot pays"
    )
    metrics_topics_max: int = setting(200, "topics with metrics of their own; the rest are counted together")
    metrics_groups_max: int = setting(200, "groups with metrics of their own; the rest are counted together")
    group_lag_interval_ms: int = setting(5_000, "time between checks of how far groups are behind", at_least=1)
    log_level: str = setting("info", "debug, info, warning or error", one_of=("debug", "info", "warning", "error"))
    log_format: str = setting(
        "auto", "text, json, or auto: text on a terminal, json elsewhere", one_of=("auto", "text", "json")
    )

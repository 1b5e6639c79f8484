"""Fetch (key 1), versions 4-18, written by hand because every batch leaves here: both sides, both directions.

Rules: pure bytes to values and back. Records are never looked at and never copied: encoding a response gives a list of
chunks among which are the caller's buffers, parsing one gives views into the caller's buffer.

How it works: requests are in `fetch_request.py`, responses in `fetch_response.py`; callers import from here. There are
two layouts, the old one (4-11) and the flexible one (12-18).

    requests    v5 log_start_offset · v7 sessions and forgotten topics · v9 current_leader_epoch · v11 rack_id
                v12 flexible, last_fetched_epoch, cluster_id (tagged) · v13 topics by id · v15 replica_id moves
                into the tagged replica_state · v17 replica_directory_id · v18 high_watermark (both tagged)
    responses   v5 log_start_offset · v7 error_code and session_id · v11 preferred_read_replica
                v12 flexible, diverging epoch, leader and snapshot (tagged) · v13 topics by id
                v16 node_endpoints (tagged)

v6, 8, 10 and 14 change meaning only.

Invariants:
1. Only ProtocolViolation leaves a parser, whatever the bytes.
2. Arrays are bounded by the bytes left and, all together, by `ELEMENTS_MAX`.
3. A response's records are never null: an empty partition has records of length zero, or librdkafka stops reading.

Proved by: tests/unit/wire/test_fetch_codec.py, tests/properties/test_produce_fetch_codec.py
"""

from martlet.wire.fetch_request import (
    UNKNOWN_HIGH_WATERMARK,
    VERSIONS,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    encode_fetch_request,
    parse_fetch_request,
)
from martlet.wire.fetch_response import (
    AbortedTransaction,
    EpochEndOffset,
    FetchPartitionResult,
    FetchResponse,
    FetchTopicResult,
    SnapshotId,
    encode_fetch_response,
    parse_fetch_response,
)
from martlet.wire.leader_hints import CurrentLeader, NodeEndpoint

__all__ = [
    "UNKNOWN_HIGH_WATERMARK",
    "VERSIONS",
    "AbortedTransaction",
    "CurrentLeader",
    "EpochEndOffset",
    "FetchPartition",
    "FetchPartitionResult",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "FetchTopicResult",
    "ForgottenTopic",
    "NodeEndpoint",
    "SnapshotId",
    "encode_fetch_request",
    "encode_fetch_response",
    "parse_fetch_request",
    "parse_fetch_response",
]

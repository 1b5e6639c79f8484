"""InitProducerId (key 22): a producer id and epoch for idempotent and transactional producers.

Versions 0–6. v2 is the first flexible one; v3 lets a producer name the id and epoch it has, to have the epoch bumped;
v4 allows PRODUCER_FENCED; v5 allows TRANSACTION_ABORTABLE; v6 is the two-phase form of KIP-939, unstable in Kafka.
"""

from martlet.wire.message import message


@message
class InitProducerIdRequest:
    """Who wants an id; without a transactional id the producer is merely idempotent."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    producer_id: int = -1  # v3+
    producer_epoch: int = -1  # v3+
    enable2_pc: bool = False  # v6+
    keep_prepared_txn: bool = False  # v6+


@message
class InitProducerIdResponse:
    """The id and epoch to use, and those of a prepared transaction that was kept."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0
    ongoing_txn_producer_id: int = -1  # v6+
    ongoing_txn_producer_epoch: int = -1  # v6+

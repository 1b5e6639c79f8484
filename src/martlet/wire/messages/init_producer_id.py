"""InitProducerId (key 22): a producer id and epoch for idempotent and transactional producers.

Versions 0–5. v2 is the first flexible one; v3 lets a producer name the id and epoch it has, to have the epoch bumped;
v4 allows PRODUCER_FENCED; v5 allows TRANSACTION_ABORTABLE. v6 (two-phase commit) is unstable in Kafka and left out.
"""

from martlet.wire.message import message


@message
class InitProducerIdRequest:
    """Who wants an id; without a transactional id the producer is merely idempotent."""

    transactional_id: str | None = None
    transaction_timeout_ms: int = 0
    producer_id: int = -1  # v3+
    producer_epoch: int = -1  # v3+


@message
class InitProducerIdResponse:
    """The id and epoch to use."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1
    producer_epoch: int = 0

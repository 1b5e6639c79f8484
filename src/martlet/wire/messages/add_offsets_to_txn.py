"""AddOffsetsToTxn (key 25): the offsets of a group become part of a producer's transaction.

Versions 0–4. v2 allows PRODUCER_FENCED, v3 is the first flexible one, v4 allows TRANSACTION_ABORTABLE.
"""

from martlet.wire.message import message


@message
class AddOffsetsToTxnRequest:
    """Whose transaction, and which group."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    group_id: str = ""


@message
class AddOffsetsToTxnResponse:
    """Whether the group's offsets may be committed in the transaction."""

    throttle_time_ms: int = 0
    error_code: int = 0

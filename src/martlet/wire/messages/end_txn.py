"""EndTxn (key 26): a producer commits or aborts its transaction.

Versions 0–5. v2 allows PRODUCER_FENCED, v3 is the first flexible one, v4 allows TRANSACTION_ABORTABLE; v5 is the second
generation: the answer names the id and epoch of the next transaction.
"""

from martlet.wire.message import message


@message
class EndTxnRequest:
    """Whose transaction, and how it ends."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    committed: bool = False


@message
class EndTxnResponse:
    """Whether the end is decided; the id and epoch are -1 when it is not."""

    throttle_time_ms: int = 0
    error_code: int = 0
    producer_id: int = -1  # v5+
    producer_epoch: int = -1  # v5+

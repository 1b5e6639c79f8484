"""What a producer's batches carry while they are part of a transaction, and whether it can still be committed. No I/O.

The one object shared by `TransactionalProducer`, which decides, and its `Producer`, which sends.
"""

from typing import NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.client.accumulator import ProducerIdentity

NOBODY = ProducerIdentity(-1, -1)


class WhenceOffsets(NamedTuple):
    """As which member of which group a transaction commits offsets; a member without an id is from outside."""

    group_id: str
    member_id: str = ""
    generation: int = -1
    instance_id: str | None = None


class TransactionState:
    """Of one transactional id; every transaction has an epoch of its own, in which sequences begin at 0."""

    __slots__ = ("failure", "has_content", "identity", "transactional_id")

    def __init__(self, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.identity = NOBODY
        self.failure: Exception | None = None
        """Why the open transaction can only be aborted; the first reason stays."""
        self.has_content = False
        """Whether anything was sent that may have opened it at the brokers."""

    def failed(self, error: Exception) -> None:
        """Something of the transaction is lost, or may be."""
        self.failure = self.failure or error

    def next_transaction(self, identity: ProducerIdentity) -> None:
        """The one before is over."""
        self.identity, self.failure, self.has_content = identity, None, False


def is_fenced(error: Exception | None) -> bool:
    """Whether a newer producer uses the transactional id, or the broker has ended the transaction by itself."""
    return isinstance(error, ApiError) and error.code in (
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    )

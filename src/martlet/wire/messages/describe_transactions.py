"""DescribeTransactions (key 65): how far the transactions of some ids are.

Version 0 only, flexible.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DescribeTransactionsRequest:
    """The ids asked for."""

    transactional_ids: list[str] = field(default_factory=list)


@message
class TopicData:
    """The partitions of one topic that are in the transaction."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@message
class TransactionState:
    """One id; without an open transaction the start is -1 and there are no topics."""

    error_code: int = 0
    transactional_id: str = ""
    transaction_state: str = ""
    transaction_timeout_ms: int = 0
    transaction_start_time_ms: int = -1
    producer_id: int = 0
    producer_epoch: int = 0
    topics: list[TopicData] = field(default_factory=list)


@message
class DescribeTransactionsResponse:
    """One answer for each id."""

    throttle_time_ms: int = 0
    transaction_states: list[TransactionState] = field(default_factory=list)

"""AddPartitionsToTxn (key 24): partitions become part of a producer's transaction.

Versions 0–5. Clients use v0–v3, for one transaction; v3 is the first flexible one. Brokers use v4 and v5, for several,
and may ask only whether the partitions are in the transaction (`verify_only`); v4 allows PRODUCER_FENCED for the whole
request, v5 TRANSACTION_ABORTABLE.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class AddPartitionsToTxnTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)


@message
class AddPartitionsToTxnTransaction:
    """One transaction and its partitions."""

    transactional_id: str = ""
    producer_id: int = 0
    producer_epoch: int = 0
    verify_only: bool = False
    topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@message
class AddPartitionsToTxnRequest:
    """A client's one transaction, or a broker's several."""

    transactions: list[AddPartitionsToTxnTransaction] = field(default_factory=list)  # v4+
    v3_and_below_transactional_id: str = ""
    v3_and_below_producer_id: int = 0
    v3_and_below_producer_epoch: int = 0
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = field(default_factory=list)


@message
class AddPartitionsToTxnPartitionResult:
    """Whether one partition is in the transaction now."""

    partition_index: int = 0
    partition_error_code: int = 0


@message
class AddPartitionsToTxnTopicResult:
    """The answers for one topic."""

    name: str = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = field(default_factory=list)


@message
class AddPartitionsToTxnResult:
    """The answers for one transaction."""

    transactional_id: str = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)


@message
class AddPartitionsToTxnResponse:
    """The answers; an error that concerns the transaction stands in every partition."""

    throttle_time_ms: int = 0
    error_code: int = 0  # v4+
    results_by_transaction: list[AddPartitionsToTxnResult] = field(default_factory=list)  # v4+
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = field(default_factory=list)

"""WriteTxnMarkers (key 27): a coordinator ends transactions on the partitions that a broker leads.

Versions 1–2, flexible. v2 says of each marker which generation of the protocol its transaction spoke.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class WritableTxnMarkerTopic:
    """The partitions of one topic."""

    name: str = ""
    partition_indexes: list[int] = field(default_factory=list)


@message
class WritableTxnMarker:
    """How one producer's transaction ends, and where; `transaction_result` is true for a commit."""

    producer_id: int = 0
    producer_epoch: int = 0
    transaction_result: bool = False
    topics: list[WritableTxnMarkerTopic] = field(default_factory=list)
    coordinator_epoch: int = 0
    transaction_version: int = 0  # v2+


@message
class WriteTxnMarkersRequest:
    """The markers to be written."""

    markers: list[WritableTxnMarker] = field(default_factory=list)


@message
class WritableTxnMarkerPartitionResult:
    """Whether the marker of one partition is written and committed."""

    partition_index: int = 0
    error_code: int = 0


@message
class WritableTxnMarkerTopicResult:
    """The answers for one topic."""

    name: str = ""
    partitions: list[WritableTxnMarkerPartitionResult] = field(default_factory=list)


@message
class WritableTxnMarkerResult:
    """The answers for one marker."""

    producer_id: int = 0
    topics: list[WritableTxnMarkerTopicResult] = field(default_factory=list)


@message
class WriteTxnMarkersResponse:
    """One answer for each marker, in the order of the request."""

    markers: list[WritableTxnMarkerResult] = field(default_factory=list)

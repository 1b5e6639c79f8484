"""DescribeCluster (key 60): cluster id, controller and brokers.

Versions 0–2, all flexible. v1 adds the endpoint type (1 brokers, 2 controllers); v2 fenced brokers.
"""

from dataclasses import field

from martlet.wire.message import message
from martlet.wire.messages.authorized_operations import OPERATIONS_NOT_REQUESTED


@message
class DescribeClusterRequest:
    """What is wanted."""

    include_cluster_authorized_operations: bool = False
    endpoint_type: int = 1  # v1+
    include_fenced_brokers: bool = False  # v2+


@message
class DescribeClusterBroker:
    """Where one broker listens."""

    broker_id: int = 0
    host: str = ""
    port: int = 0
    rack: str | None = None
    is_fenced: bool = False  # v2+


@message
class DescribeClusterResponse:
    """The cluster as this broker sees it."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    endpoint_type: int = 1  # v1+
    cluster_id: str = ""
    controller_id: int = -1
    brokers: list[DescribeClusterBroker] = field(default_factory=list)
    cluster_authorized_operations: int = OPERATIONS_NOT_REQUESTED

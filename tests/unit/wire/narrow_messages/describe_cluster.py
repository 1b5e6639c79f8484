"""DescribeCluster without the array of brokers, the texts and half of the numbers."""

from dataclasses import dataclass


@dataclass(slots=True)
class DescribeClusterResponse:
    """Keeps one number before and one after what it drops."""

    error_code: int = 0
    cluster_authorized_operations: int = 0

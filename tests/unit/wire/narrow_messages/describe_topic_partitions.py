"""DescribeTopicPartitions without the nullable struct."""

from dataclasses import dataclass


@dataclass(slots=True)
class DescribeTopicPartitionsRequest:
    """Keeps one number."""

    response_partition_limit: int = 1

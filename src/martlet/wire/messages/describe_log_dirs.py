"""DescribeLogDirs (key 35): what lies in this broker's log directories.

Versions 1–5. v2 is the first flexible one; v3 adds an error for the whole response; v4 the size of the volume; v5
whether the directory takes new partitions.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@message
class DescribeLogDirsRequest:
    """The partitions asked for; None is all of them."""

    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)


@message
class DescribeLogDirsPartition:
    """One partition on this disk."""

    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


@message
class DescribeLogDirsTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


@message
class DescribeLogDirsResult:
    """One log directory."""

    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: int = -1  # v4+
    usable_bytes: int = -1  # v4+
    is_cordoned: bool = False  # v5+


@message
class DescribeLogDirsResponse:
    """All log directories of this broker."""

    throttle_time_ms: int = 0
    error_code: int = 0  # v3+
    results: list[DescribeLogDirsResult] = field(default_factory=list)

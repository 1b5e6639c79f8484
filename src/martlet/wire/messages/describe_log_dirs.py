"""DescribeLogDirs (key 35): what lies in this broker's log directories.

Versions 1–5. v2 is the first flexible one; v3 adds an error for the whole response; v4 the size of the volume; v5
whether the directory takes new partitions.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class DescribableLogDirTopic:
    """The partitions of one topic."""

    topic: str = ""
    partitions: list[int] = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsRequest:
    """The partitions asked for; None is all of them."""

    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsPartition:
    """One partition on this disk."""

    partition_index: int = 0
    partition_size: int = 0
    offset_lag: int = 0
    is_future_key: bool = False


@dataclass(slots=True)
class DescribeLogDirsTopic:
    """The partitions of one topic."""

    name: str = ""
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


@dataclass(slots=True)
class DescribeLogDirsResult:
    """One log directory."""

    error_code: int = 0
    log_dir: str = ""
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: int = -1  # v4+
    usable_bytes: int = -1  # v4+
    is_cordoned: bool = False  # v5+


@dataclass(slots=True)
class DescribeLogDirsResponse:
    """All log directories of this broker."""

    throttle_time_ms: int = 0
    error_code: int = 0  # v3+
    results: list[DescribeLogDirsResult] = field(default_factory=list)

"""AlterReplicaLogDirs (key 34): keep replicas of this broker in another of its log directories.

Versions 1–2, which differ only in that v2 is flexible.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class AlterReplicaLogDirTopic:
    """Partitions of one topic."""

    name: str = ""
    partitions: list[int] = field(default_factory=list)


@message
class AlterReplicaLogDir:
    """A directory and what it shall hold."""

    path: str = ""
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)


@message
class AlterReplicaLogDirsRequest:
    """The wishes, by directory."""

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)


@message
class AlterReplicaLogDirPartitionResult:
    """What became of one partition."""

    partition_index: int = 0
    error_code: int = 0


@message
class AlterReplicaLogDirTopicResult:
    """The partitions of one topic."""

    topic_name: str = ""
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)


@message
class AlterReplicaLogDirsResponse:
    """The results, by topic."""

    throttle_time_ms: int = 0
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)

"""Names of files and directories of a log, and the only place that reads meaning out of such a name.

    <topic>-<partition>/                    one partition
    <topic>-<partition>.<id>-delete/        a deleted partition whose files are still to be removed
    <20 digits>.log .index .timeindex       a segment, named by its base offset
    <20 digits>.txnindex                    the aborted transactions whose markers are in the segment, if any
    aborted-transactions                    from which segment on each has such a file (`aborted_note`)
    <20 digits>.snapshot                    producer state at that offset
    ….cleaned ….swap ….deleted              see `compaction_swap`

Names come from disk and, through topic names, from clients: whatever does not have exactly one of these shapes
is no business of ours and is left alone. A directory name is built only from a legal topic name, so that no name can
lead outside the log directory.
"""

import re
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition

LOG: Final = ".log"
INDEX: Final = ".index"
TIME_INDEX: Final = ".timeindex"
ABORTED_INDEX: Final = ".txnindex"
INDEX_KINDS: Final = (INDEX, TIME_INDEX, ABORTED_INDEX)
SNAPSHOT: Final = ".snapshot"
CLEANED: Final = ".cleaned"
SWAP: Final = ".swap"
DELETED: Final = ".deleted"
DELETED_DIRECTORY: Final = "-delete"
STRAY_DIRECTORY: Final = "-stray"

EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
KNOWN_GAPS: Final = "known-gaps"
ABORTED_NOTE: Final = "aborted-transactions"
RECOVERY_FLOOR: Final = "recovery-floor-checkpoint"
RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_START_OFFSETS: Final = "log-start-offset-checkpoint"
CLEANED_OFFSETS: Final = "cleaner-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEAN_SHUTDOWN: Final = ".martlet-clean-shutdown"
LOSS_FOUND: Final = ".martlet-loss-found"
ASIDE_NOTED: Final = ".martlet-aside-noted"

_FILE_NAME_BYTES_MAX: Final = 255
_PARTITION_MAX: Final = 1_000_000
_OFFSET_FILE: Final = re.compile(r"([0-9]{20})((?:\.[a-z]+)+)", re.ASCII)
_PARTITION_DIRECTORY: Final = re.compile(r"([a-zA-Z0-9._-]{1,249})-(0|[1-9][0-9]{0,6})", re.ASCII)
_ASIDE_END: Final = re.compile(rf"\.([0-9a-f]{{8}})({DELETED_DIRECTORY}|{STRAY_DIRECTORY})$", re.ASCII)
_TOPIC: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}", re.ASCII)


def offset_file(offset: int, suffix: str) -> str:
    """The name of the file of that kind at `offset`."""
    return f"{offset:020d}{suffix}"


def parse_offset_file(name: str) -> tuple[int, str] | None:
    """Offset and suffix (`.log`, `.index.deleted` …) of a file's name, None for any other name."""
    match = _OFFSET_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def partition_directory(partition: TopicPartition) -> str:
    """The directory's name; raises ApiError(INVALID_TOPIC_EXCEPTION) for a topic that cannot be one."""
    topic, index = partition
    if topic in (".", "..") or not _TOPIC.fullmatch(topic) or not 0 <= index < _PARTITION_MAX:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"no directory can be named for {topic[:300]!r}, {index}")
    return f"{topic}-{index}"


def parse_partition_directory(name: str) -> TopicPartition | None:
    """The partition a directory belongs to; None when the name is not one of `partition_directory`."""
    match = _PARTITION_DIRECTORY.fullmatch(name)
    if not match or match[1] in (".", "..") or int(match[2]) >= _PARTITION_MAX:
        return None
    return TopicPartition(match[1], int(match[2]))


def aside_directory(partition: TopicPartition, unique: str, kind: str) -> str:
    """The name of a partition that is deleted or stray; long topics are cut to fit a file name."""
    suffix = f"-{partition.partition}.{unique}{kind}"
    return partition.topic[: _FILE_NAME_BYTES_MAX - len(suffix)] + suffix


def is_aside(name: str) -> bool:
    """Whether a directory of this name was deleted or set aside."""
    return _ASIDE_END.search(name) is not None


def is_aside_of(name: str, partition: TopicPartition) -> bool:
    """Whether a directory of this name is what `aside_directory` made of this very partition's."""
    match = _ASIDE_END.search(name)
    return match is not None and aside_directory(partition, match[1], match[2]) == name

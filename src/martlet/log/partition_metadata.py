"""The file that says whose partition a directory is.

Rules: the file can be made again, so one that cannot be read is the same as none (`rebuilt_files`).
Proved by: tests/unit/log/test_partition_log.py, tests/unit/log/test_rebuilt_files.py
"""

from martlet.base.disk import Disk, DiskFile
from martlet.base.ids import TopicId
from martlet.log.checkpoints import BrokenCheckpoint, decode_topic_id, encode_topic_id
from martlet.log.file_names import PARTITION_METADATA
from martlet.log.rebuilt_files import open_rebuilt, read_rebuilt


def write_topic_id(disk: Disk, directory: str, topic_id: TopicId) -> DiskFile:
    """Write it down; the file, which the caller has yet to sync, with its directory."""
    file = open_rebuilt(disk, f"{directory}/{PARTITION_METADATA}")
    file.truncate(0)
    file.append(encode_topic_id(topic_id))
    return file


def read_topic_id(disk: Disk, directory: str) -> TopicId | None:
    """Whose partition a directory is, if it says so."""
    content = read_rebuilt(disk, f"{directory}/{PARTITION_METADATA}")
    try:
        return None if content is None else decode_topic_id(content)
    except BrokenCheckpoint:
        # Whose partition this is can be learned elsewhere; deleting it for want of a name would be the worst answer.
        return None

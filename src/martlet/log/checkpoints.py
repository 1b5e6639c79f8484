"""The small text files of a log directory, in Kafka's formats: checkpoints and a partition's topic id.

Rules: text in, values out, nothing else; the reader decides what a broken file means. Every file is written whole
by `Disk.replace_file`, so a broken one was damaged at rest.

How it works: a checkpoint is a version line `0`, a line with the number of entries, then one entry a line, the fields
separated by one space: `<topic> <partition> <offset>` or, for leader epochs, `<epoch> <start offset>`.
"""

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from crc32c import crc32c

from martlet.base.ids import TopicId, TopicPartition, format_topic_id, parse_topic_id

_VERSION: Final = "0"


class BrokenCheckpoint(ValueError):
    """A checkpoint file does not hold what it should."""


def encode_offsets(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Offsets by partition, sorted so that equal content is equal bytes."""
    return _encode(f"{topic} {partition} {offset}" for (topic, partition), offset in sorted(offsets.items()))


def decode_offsets(content: bytes) -> dict[TopicPartition, int]:
    """The inverse of `encode_offsets`; raises BrokenCheckpoint."""
    offsets = {}
    for fields in _decode(content, fields_per_line=3):
        offsets[TopicPartition(fields[0], _number(fields[1]))] = _number(fields[2])
    return offsets


def encode_epochs(entries: Iterable[tuple[int, int]]) -> bytes:
    """Leader epochs and their start offsets, oldest first."""
    return _encode(f"{epoch} {start_offset}" for epoch, start_offset in entries)


def decode_epochs(content: bytes) -> list[tuple[int, int]]:
    """The inverse of `encode_epochs`; raises BrokenCheckpoint, also when epochs or offsets go backwards."""
    entries = [(_number(first), _number(second)) for first, second in _decode(content, fields_per_line=2)]
    for (epoch, start), (next_epoch, next_start) in pairwise(entries):
        if next_epoch <= epoch or next_start < start:
            raise BrokenCheckpoint(f"epoch {next_epoch} at {next_start} follows epoch {epoch} at {start}")
    return entries


def encode_topic_id(topic_id: TopicId) -> bytes:
    """The content of `partition.metadata`: as Kafka writes it, and a line more, which Kafka ignores.

    A topic id with one wrong letter is another topic's, and the log would be put aside as that one's.
    """
    content = f"version: 0\ntopic_id: {format_topic_id(topic_id)}".encode()
    return content + f"\nchecksum: {crc32c(content):08x}".encode()


def decode_topic_id(content: bytes) -> TopicId:
    """The inverse of `encode_topic_id`, and of what Kafka writes; raises BrokenCheckpoint."""
    try:
        covered, _, checksum = content.decode("ascii").rstrip("\n").partition("\nchecksum: ")
        if checksum and checksum != f"{crc32c(covered.encode()):08x}":
            raise BrokenCheckpoint("the checksum does not match")
        lines = dict(line.split(": ", 1) for line in content.decode("ascii").splitlines() if line)
        if lines["version"] != "0":
            raise BrokenCheckpoint(f"unknown version {lines['version']!r}")
        return parse_topic_id(lines["topic_id"])
    except BrokenCheckpoint:
        raise
    except (ValueError, KeyError) as error:
        raise BrokenCheckpoint(f"not a topic id: {content[:80]!r}") from error


def _encode(lines: Iterable[str]) -> bytes:
    entries = list(lines)
    return "\n".join([_VERSION, str(len(entries)), *entries, ""]).encode()


def _decode(content: bytes, *, fields_per_line: int) -> list[list[str]]:
    try:
        lines = content.decode("ascii").split("\n")
    except UnicodeDecodeError as error:
        raise BrokenCheckpoint("not ASCII text") from error
    if lines[0] != _VERSION:
        raise BrokenCheckpoint(f"unknown version {lines[0][:20]!r}")
    if len(lines) < 3 or lines[-1] or _number(lines[1]) != len(lines) - 3:
        raise BrokenCheckpoint("the number of entries is not what the file says")
    entries = [line.split(" ") for line in lines[2:-1]]
    if any(len(fields) != fields_per_line for fields in entries):
        raise BrokenCheckpoint(f"an entry has not {fields_per_line} fields")
    return entries


def _number(text: str) -> int:
    if not text.isdigit() or len(text) > 19:
        raise BrokenCheckpoint(f"not a number: {text[:20]!r}")
    return int(text)

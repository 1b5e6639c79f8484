"""Looks at a log directory that no broker uses and tells everything that is wrong in it.

Rules: reads only, and all of it. What a start says lazily or mends silently is told here at once: damaged and missing
messages, and damaged helper files (indexes, snapshots, checkpoints), of which a start takes no notice but time. What a
killed process may leave, an unfinished last write, is no fault.

How it works: every segment is surveyed (`batch_survey`); what its batches say is compared with each file beside it.
Proved by: tests/unit/log/test_check.py, tests/broker/test_damage_matrix.py
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from struct import Struct
from typing import Final

from martlet.base.disk import DirectoryEntry, Disk
from martlet.base.errors import StorageFailure
from martlet.base.ids import TopicPartition
from martlet.log.batch_order import KnownGaps, decode_gaps, encode_gaps, read_gaps
from martlet.log.batch_survey import Damage
from martlet.log.checkpoint_files import CheckpointFiles, read_checkpoint_files
from martlet.log.checkpoints import BrokenCheckpoint, decode_epochs, decode_offsets, decode_topic_id
from martlet.log.epoch_cache import EpochCache
from martlet.log.file_names import (
    CLEAN_SHUTDOWN,
    CLEANED_OFFSETS,
    DELETED,
    EPOCH_CHECKPOINT,
    HIGH_WATERMARKS,
    INDEX,
    KNOWN_GAPS,
    LOG,
    LOG_START_OFFSETS,
    PARTITION_METADATA,
    RECOVERY_FLOOR,
    RECOVERY_POINTS,
    SNAPSHOT,
    TIME_INDEX,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
    partition_directory,
)
from martlet.log.producer_snapshot import decode_producers
from martlet.log.recovery import LogCheckpoint, apply_floor
from martlet.log.segment import Segment

_INDEX_ENTRY: Final = Struct(">ii")
_TIME_ENTRY: Final = Struct(">qi")
_READS_ALL: Final = "the next start reads more of each log, and is careful"
_REBUILT: Final = "it is made again from the messages"


class FindingKind(Enum):
    """What a finding costs."""

    LOST = "lost"
    """Messages that cannot be read."""
    END_LOST = "end lost"
    """The end of a log is missing; on a single replica its partition does not open, or cannot give all offsets."""
    REBUILT = "rebuilt"
    """A file that a start makes again."""
    UNREADABLE = "unreadable"
    """The device or the permissions do not let the file be read."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One fault."""

    kind: FindingKind
    file: str
    what: str
    consequence: str
    partition: TopicPartition | None = None
    position: int | None = None
    first_offset: int | None = None
    next_offset: int | None = None


@dataclass(slots=True)
class _SegmentFacts:
    """What the sound batches of a segment say."""

    places: dict[tuple[int, int], int]
    """Greatest timestamp of the batch that ends at a relative offset and begins at a position."""
    latest: tuple[int, int] = (-1, 0)
    """The greatest timestamp and the relative offset of the first batch that has it."""

    def times(self) -> set[tuple[int, int]]:
        return {(timestamp, relative) for (relative, _), timestamp in self.places.items()}


def check_log_directory(disk: Disk, path: str) -> Iterator[Finding]:
    """Every fault in the directory of one broker."""
    yield from _check_checkpoint_files(disk, path)
    files = read_checkpoint_files(disk, path)
    is_clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
    found = set()
    for name, is_directory, _ in disk.list_directory(path):
        partition = parse_partition_directory(name) if is_directory else None
        if partition is not None:
            found.add(partition)
            yield from check_partition(disk, f"{path}/{name}", partition, files.of(partition, is_clean=is_clean))
    yield from _missing_directories(path, files, found)


def check_partition(disk: Disk, directory: str, partition: TopicPartition, known: LogCheckpoint) -> Iterator[Finding]:
    """Every fault in one partition's directory."""
    try:
        yield from _PartitionCheck(disk, directory, partition, known).run()
    except StorageFailure as failure:
        yield Finding(FindingKind.UNREADABLE, directory, str(failure), "its partition is offline", partition)


def _check_checkpoint_files(disk: Disk, path: str) -> Iterator[Finding]:
    names = (RECOVERY_POINTS, LOG_START_OFFSETS, CLEANED_OFFSETS, HIGH_WATERMARKS)
    contents: dict[str, bytes | None] = {}
    for name in names:
        try:
            contents[name] = disk.read_file(f"{path}/{name}")
        except StorageFailure as failure:
            yield Finding(FindingKind.UNREADABLE, f"{path}/{name}", str(failure), "the broker does not start")
    if not any(contents.values()):
        return
    for name, content in contents.items():
        if content is None:
            yield Finding(FindingKind.REBUILT, f"{path}/{name}", "the file is gone", _READS_ALL)
            continue
        try:
            decode_offsets(content)
        except BrokenCheckpoint as error:
            yield Finding(FindingKind.REBUILT, f"{path}/{name}", f"the file is damaged: {error}", _READS_ALL)


def _missing_directories(path: str, files: CheckpointFiles, found: set[TopicPartition]) -> Iterator[Finding]:
    for partition in sorted((files.recovery_points or {}).keys() - found):
        end_offset = files.end_of(partition)
        if end_offset:
            yield Finding(
                FindingKind.END_LOST,
                f"{path}/{partition_directory(partition)}",
                "the directory is gone",
                "its partition is offline",
                partition,
                None,
                (files.starts or {}).get(partition, 0),
                end_offset,
            )


class _PartitionCheck:
    """One walk over a partition's directory."""

    def __init__(self, disk: Disk, directory: str, partition: TopicPartition, known: LogCheckpoint) -> None:
        self._disk = disk
        self._directory = directory
        self._partition = partition
        floor = disk.read_file(f"{directory}/{RECOVERY_FLOOR}")
        self._known = known if floor is None else apply_floor(known, floor, partition)
        gaps = read_gaps(disk, directory)
        self._gaps: KnownGaps = gaps._replace(is_compacted=gaps.is_compacted or known.cleaned_offset > 0)
        self._epochs: list[tuple[int, int]] = []
        self._end_offset = 0

    def run(self) -> Iterator[Finding]:
        entries = self._disk.list_directory(self._directory)
        segments = self._segments(entries)
        names = {entry.name for entry in entries}
        yield from self._check_start(segments, names)
        for segment, following in pairwise([*segments, None]):
            if segment is not None:
                yield from self._check_segment(segment, following, names)
        yield from self._check_end(segments)
        yield from self._check_small_files(segments, entries)

    def _segments(self, entries: list[DirectoryEntry]) -> list[Segment]:
        found = []
        for name, is_directory, size in entries:
            parsed = None if is_directory else parse_offset_file(name)
            if parsed is not None and parsed[1] == LOG:
                found.append(
                    Segment(
                        self._disk, self._directory, parsed[0], size=size, index_interval_bytes=1 << 30, gaps=self._gaps
                    )
                )
        return found

    def _lost(
        self, kind: FindingKind, file: str, position: int | None, first: int, following: int, what: str
    ) -> Finding:
        consequence = (
            "its partition does not open on a single replica"
            if kind is FindingKind.END_LOST
            else "who reads these offsets gets an error"
        )
        return Finding(kind, file, what, consequence, self._partition, position, first, following)

    def _check_start(self, segments: list[Segment], names: set[str]) -> Iterator[Finding]:
        known = self._known
        start_offset = self._gaps.end_of(known.log_start_offset)
        is_deleted = any(name.endswith(LOG + DELETED) for name in names)
        if segments and known.is_start_known and start_offset < segments[0].base_offset and not is_deleted:
            what, end_offset = "the first segments are gone", segments[0].base_offset
            yield self._lost(FindingKind.LOST, self._directory, None, start_offset, end_offset, what)

    def _check_segment(self, segment: Segment, following: Segment | None, names: set[str]) -> Iterator[Finding]:
        known = self._known
        is_last = following is None
        until = known.recovery_point if following is None and known.is_clean else None
        until = until if following is None else following.base_offset
        facts = _SegmentFacts({})
        survey = segment.survey(0, next_offset=segment.base_offset, until=until)
        try:
            for position, header in survey:
                self._take(facts, segment, position, header.last_offset, header.max_timestamp)
                if not self._epochs or header.partition_leader_epoch > self._epochs[-1][0]:
                    self._epochs.append((header.partition_leader_epoch, header.base_offset))
        except StorageFailure as failure:
            what, path = str(failure), segment.path
            consequence = "who reads these offsets gets an error"
            yield Finding(
                FindingKind.UNREADABLE, path, what, consequence, self._partition, None, segment.base_offset, until
            )
            self._end_offset = max(self._end_offset, until or 0)
            return
        self._end_offset = max(self._gaps.end_of(survey.next_offset), until or 0)
        for damage in survey.damage:
            if not (is_last and survey.ends_unfinished and damage is survey.damage[-1]):
                yield self._damage(segment, damage, is_at_end=is_last and damage is survey.damage[-1])
        yield from self._check_indexes(segment, facts, names, is_sealed=not is_last)

    def _damage(self, segment: Segment, damage: Damage, *, is_at_end: bool) -> Finding:
        first, following = damage.first_offset, damage.next_offset
        is_cut = is_at_end and damage.end == segment.size and damage.next_offset == damage.first_offset
        if is_cut:
            following = max(self._known.recovery_point or 0, self._known.high_watermark, first)
        if is_cut and following == first:
            consequence = "the next start cuts the log there; what is cut off is kept beside it"
            return Finding(
                FindingKind.LOST, segment.path, damage.what, consequence, self._partition, damage.position, first, first
            )
        kind = FindingKind.END_LOST if is_cut else FindingKind.LOST
        return self._lost(kind, segment.path, damage.position, first, following, damage.what)

    def _take(self, facts: _SegmentFacts, segment: Segment, position: int, last_offset: int, timestamp: int) -> None:
        relative = last_offset - segment.base_offset
        facts.places[relative, position] = timestamp
        if timestamp > facts.latest[0]:
            facts.latest = (timestamp, relative)

    def _check_indexes(
        self, segment: Segment, facts: _SegmentFacts, names: set[str], *, is_sealed: bool
    ) -> Iterator[Finding]:
        must_be_whole = (is_sealed or self._known.is_clean) and segment.size > 0
        stem = offset_file(segment.base_offset, "")
        times = self._read(stem + TIME_INDEX)
        index = self._read(stem + INDEX)
        entries = list(_INDEX_ENTRY.iter_unpack(index[: len(index) // 8 * 8]))
        time_entries = list(_TIME_ENTRY.iter_unpack(times[: len(times) // 12 * 12]))
        wrong_index = any(entry not in facts.places for entry in entries) or len(index) % 8
        wrong_times = not facts.times().issuperset(time_entries) or len(times) % 12
        if must_be_whole:
            is_sealed_whole = not is_sealed or time_entries[-1:] == [facts.latest]
            wrong_index = wrong_index or stem + INDEX not in names or len(entries) < len(time_entries) - 1
            wrong_times = wrong_times or stem + TIME_INDEX not in names or not is_sealed_whole
        for is_wrong, suffix in ((wrong_index, INDEX), (wrong_times, TIME_INDEX)):
            if is_wrong and facts.places:
                yield self._rebuilt(stem + suffix, names, "it does not agree with the messages")

    def _rebuilt(self, name: str, names: set[str], what: str) -> Finding:
        what = what if name in names else "the file is gone"
        return Finding(FindingKind.REBUILT, f"{self._directory}/{name}", what, _REBUILT, self._partition)

    def _read(self, name: str) -> bytes:
        return self._disk.read_file(f"{self._directory}/{name}") or b""

    def _check_end(self, segments: list[Segment]) -> Iterator[Finding]:
        flushed = self._known.recovery_point or 0
        if self._end_offset < flushed and (not segments or not self._known.is_clean):
            what = "the log ends too early" if segments else "all segments are gone"
            file = segments[-1].path if segments else self._directory
            yield self._lost(FindingKind.END_LOST, file, None, self._end_offset, flushed, what)

    def _check_small_files(self, segments: list[Segment], entries: list[DirectoryEntry]) -> Iterator[Finding]:
        names = {entry.name for entry in entries}
        if not segments:
            return
        for name in sorted(names):
            parsed = parse_offset_file(name)
            if parsed is not None and parsed[1] == SNAPSHOT and decode_producers(self._read(name)) is None:
                yield self._rebuilt(name, names, "its checksum does not match")
        end_snapshot = offset_file(self._end_offset, SNAPSHOT)
        if self._known.is_clean and self._end_offset > 0 and end_snapshot not in names:
            yield self._rebuilt(end_snapshot, names, "")
        yield from self._check_epochs(names)
        try:
            decode_topic_id(self._read(PARTITION_METADATA))
        except BrokenCheckpoint as error:
            consequence = "whose partition this is, is taken from the directory's name"
            what = str(error) if PARTITION_METADATA in names else "the file is gone"
            file = f"{self._directory}/{PARTITION_METADATA}"
            yield Finding(FindingKind.REBUILT, file, what, consequence, self._partition)
        content = self._read(KNOWN_GAPS)
        if KNOWN_GAPS in names and encode_gaps(decode_gaps(content)) != content:
            file, consequence = f"{self._directory}/{KNOWN_GAPS}", "offsets that are missing for a reason look lost"
            yield Finding(FindingKind.LOST, file, "the file is damaged", consequence, self._partition)

    def _check_epochs(self, names: set[str]) -> Iterator[Finding]:
        start_offset = self._known.log_start_offset
        up_to = self._end_offset if self._known.is_clean else min(self._known.recovery_point or 0, self._end_offset)
        found = [(epoch, start) for epoch, start in self._epochs if start_offset <= start < up_to]
        try:
            cache = EpochCache(decode_epochs(self._read(EPOCH_CHECKPOINT))) if EPOCH_CHECKPOINT in names else None
        except BrokenCheckpoint as error:
            yield self._rebuilt(EPOCH_CHECKPOINT, names, str(error))
            return
        if found and (cache is None or any(cache.epoch_at(start) != epoch for epoch, start in found)):
            yield self._rebuilt(EPOCH_CHECKPOINT, names, "it does not agree with the messages")
        elif cache is not None and cache.entries and cache.entries[-1].start_offset > self._end_offset:
            yield self._rebuilt(EPOCH_CHECKPOINT, names, "it names offsets that the log does not have")

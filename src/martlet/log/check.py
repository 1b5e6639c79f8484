"""Checks a log directory that no broker uses and reports everything that is wrong in it.

Rules: reads only, and all of it. What a start says lazily or mends silently is reported here at once: damaged and
missing messages, and damaged helper files (indexes, snapshots, checkpoints), of which a start takes no notice but time.
What a killed process may leave, an unfinished last write, is no fault.

How it works: every segment is surveyed (`batch_survey`); what its batches say (`segment_facts`) is compared with the
next segment and with each of its helper files.
Proved by: tests/unit/log/test_check.py, tests/broker/test_damage_matrix.py
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Final

from martlet.base.disk import DirectoryEntry, Disk
from martlet.base.errors import StorageFailure
from martlet.base.ids import TopicPartition
from martlet.log.aborted_index import decode_aborted
from martlet.log.aborted_note import decode_note
from martlet.log.batch_order import KnownGaps, decode_gaps, encode_gaps, read_gaps
from martlet.log.batch_survey import BatchSurvey, Damage
from martlet.log.checkpoint_files import CheckpointFiles, read_checkpoint_files
from martlet.log.checkpoints import BrokenCheckpoint, decode_epochs, decode_offsets, decode_topic_id
from martlet.log.epoch_cache import EpochCache
from martlet.log.file_names import (
    ABORTED_INDEX,
    ABORTED_NOTE,
    ASIDE_NOTED,
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
    SWAP,
    TIME_INDEX,
    is_aside_of,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
    partition_directory,
)
from martlet.log.producer_replay import marker_at
from martlet.log.producer_snapshot import decode_producers
from martlet.log.rebuilt_files import read_rebuilt
from martlet.log.recovery import LogCheckpoint, apply_floor
from martlet.log.segment import Segment
from martlet.log.segment_facts import AbortedFacts, SegmentFacts, misplaced_epochs

_READS_ALL: Final = "the next start reads more of each log, and is careful"
_REBUILT: Final = "it is made again from the messages"
_SEES_ABORTED: Final = "until it is repaired, readers of committed messages can get aborted ones"


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


def check_log_directory(
    disk: Disk, path: str, begins: Callable[[int, int], None] = lambda _number, _of: None
) -> Iterator[Finding]:
    """Every fault in the directory of one broker; `begins` hears which partition of how many is looked at now."""
    yield from _check_checkpoint_files(disk, path)
    files = read_checkpoint_files(disk, path, all_are_readable=False)
    is_clean = disk.exists(f"{path}/{CLEAN_SHUTDOWN}")
    names = [name for name, is_directory, _ in disk.list_directory(path) if is_directory]
    noted = (read_rebuilt(disk, f"{path}/{ASIDE_NOTED}") or b"").decode(errors="replace").splitlines()
    lately = set(names).difference(noted)
    there = {partition: name for name in names if (partition := parse_partition_directory(name)) is not None}
    partitions = sorted(there.keys() | files.partitions())
    for number, partition in enumerate(partitions, 1):
        begins(number, len(partitions))
        was_put_aside = any(is_aside_of(name, partition) for name in lately)
        known = files.of(partition, is_clean=is_clean)
        if was_put_aside and not is_clean:
            known = files.of_its_successor(partition)
        if partition in there:
            yield from check_partition(disk, f"{path}/{there[partition]}", partition, known)
        elif not was_put_aside:
            yield from _missing_directory(path, files, partition)


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


def _missing_directory(path: str, files: CheckpointFiles, partition: TopicPartition) -> Iterator[Finding]:
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
        self._was_cut = floor is not None
        """Whether indexes may reach farther than their log."""
        gaps = read_gaps(disk, directory)
        self._gaps: KnownGaps = gaps._replace(is_compacted=gaps.is_compacted or known.cleaned_offset > 0)
        self._epochs: list[tuple[int, int]] = []
        self._transactions = AbortedFacts()
        self._end_offset = 0
        self._unreadable: dict[str, str] = {}
        self._is_swapping = False
        """Whether the next start goes on with putting a compacted segment in its place."""

    def run(self) -> Iterator[Finding]:
        entries = self._disk.list_directory(self._directory)
        segments = self._segments(entries)
        names = {entry.name for entry in entries}
        self._is_swapping = any(name.endswith(SWAP) for name in names)
        yield from self._check_start(segments, names)
        facts = []
        for segment, following in pairwise([*segments, None]):
            if segment is not None:
                facts.append(SegmentFacts(segment.path, segment.base_offset))
                yield from self._check_segment(segment, following, facts[-1], names)
        yield from self._check_end(segments)
        yield from self._check_epochs_of(facts)
        yield from self._check_small_files(segments, names)
        yield from self._check_aborted_note(names)
        for name, failure in self._unreadable.items():
            file = f"{self._directory}/{name}"
            yield Finding(FindingKind.UNREADABLE, file, failure, _REBUILT, self._partition)

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
        was_flushed = known.recovery_point is None or start_offset < known.recovery_point
        is_missed = known.is_start_known and was_flushed and not is_deleted
        if segments and is_missed and start_offset < segments[0].base_offset:
            what, end_offset = "the first segments are gone", segments[0].base_offset
            yield self._lost(FindingKind.LOST, self._directory, None, start_offset, end_offset, what)

    def _check_segment(
        self, segment: Segment, following: Segment | None, facts: SegmentFacts, names: set[str]
    ) -> Iterator[Finding]:
        known = self._known
        until = known.recovery_point if following is None and known.is_clean else None
        until = until if following is None else following.base_offset
        try:
            survey = segment.survey(0, next_offset=segment.base_offset, until=until)
            self._transactions.begin_segment()
            for position, header in survey:
                facts.take(position, header)
                self._transactions.take(header, marker_at(segment, position, header))
        except StorageFailure as failure:
            until = self._flushed_after(segment.base_offset) if until is None else until
            consequence = "who reads these offsets gets an error"
            yield Finding(
                FindingKind.UNREADABLE,
                segment.path,
                str(failure),
                consequence,
                self._partition,
                None,
                segment.base_offset,
                until,
            )
            self._end_offset = max(self._end_offset, until)
            return
        self._end_offset = max(self._gaps.end_of(survey.next_offset), until or 0)
        facts.damage = survey.damage if following is not None else self._damage_of_last(segment, survey)
        for damage in facts.damage:
            yield self._damage(segment, damage, is_end_lost=damage not in survey.damage)
        yield from self._check_indexes(segment, facts, names, is_sealed=following is not None)

    def _damage_of_last(self, segment: Segment, survey: BatchSurvey) -> list[Damage]:
        """It is not known how many messages unsound bytes at the end of a log were, only how many there must be."""
        if not survey.damage:
            return []
        *others, last = survey.damage
        if last.end < segment.size or last.next_offset > last.first_offset:
            return survey.damage
        last = last._replace(next_offset=self._flushed_after(last.first_offset))
        self._end_offset = max(self._end_offset, last.next_offset)
        is_unfinished = survey.ends_unfinished and last.next_offset == last.first_offset
        # A killed process leaves a part of the write in which it was.
        return others if is_unfinished and not self._known.is_clean else [*others, last]

    def _flushed_after(self, offset: int) -> int:
        """Up to where the log must reach, by what the checkpoints say, and at least to `offset`."""
        return max(self._known.recovery_point or 0, self._known.high_watermark, offset)

    def _damage(self, segment: Segment, damage: Damage, *, is_end_lost: bool) -> Finding:
        first, following = damage.first_offset, damage.next_offset
        if first == following:
            consequence = "the next start cuts the log there; what is cut off is kept in a file of its own"
            return Finding(
                FindingKind.LOST, segment.path, damage.what, consequence, self._partition, damage.position, first, first
            )
        kind = FindingKind.END_LOST if is_end_lost else FindingKind.LOST
        return self._lost(kind, segment.path, damage.position, first, following, damage.what)

    def _check_indexes(
        self, segment: Segment, facts: SegmentFacts, names: set[str], *, is_sealed: bool
    ) -> Iterator[Finding]:
        if not facts.places or self._is_swapping:
            return
        # What was sealed or compacted since the last checkpoint before a kill may lack the ends of its indexes, or all.
        is_noted = facts.last[-1].header.next_offset < (self._known.recovery_point or 0) and not self._gaps.is_compacted
        must_be_whole = self._known.is_clean or (is_sealed and is_noted)
        files = [offset_file(segment.base_offset, suffix) for suffix in (INDEX, TIME_INDEX)]
        index, times = (self._read(name) for name in files)
        facts.was_cut = self._was_cut and not self._known.is_clean
        faulty = facts.faulty_indexes(index, times, is_sealed=is_sealed, must_be_whole=must_be_whole)
        for name, is_faulty in zip(files, faulty, strict=True):
            if is_faulty or (must_be_whole and name not in names):
                yield from self._rebuilt(name, names, "it does not agree with the messages")
        yield from self._check_aborted(segment, facts, names, must_be_whole=must_be_whole)

    def _check_aborted(
        self, segment: Segment, facts: SegmentFacts, names: set[str], *, must_be_whole: bool
    ) -> Iterator[Finding]:
        name = offset_file(segment.base_offset, ABORTED_INDEX)
        content = self._read(name)

        def may_be_wrong(offset: int) -> bool:
            is_lost = any(first <= offset < following for first, following in self._gaps.lost)
            return is_lost or self._gaps.is_compacted or facts.may_be_wrong(offset)

        fault = self._transactions.fault(content, may_be_wrong=may_be_wrong, must_be_whole=must_be_whole)
        if fault is not None:
            is_noticed = decode_aborted(content) is None or name not in names
            yield from self._rebuilt(name, names, fault, _REBUILT if is_noticed else _SEES_ABORTED)

    def _check_aborted_note(self, names: set[str]) -> Iterator[Finding]:
        must_be_there = any(name.endswith(ABORTED_INDEX) for name in names)
        if (ABORTED_NOTE in names or must_be_there) and decode_note(self._read(ABORTED_NOTE)) is None:
            yield from self._rebuilt(ABORTED_NOTE, names, "its checksum does not match")

    def _rebuilt(self, name: str, names: set[str], what: str, consequence: str = _REBUILT) -> Iterator[Finding]:
        if name not in self._unreadable:
            what = what if name in names else "the file is gone"
            yield Finding(FindingKind.REBUILT, f"{self._directory}/{name}", what, consequence, self._partition)

    def _read(self, name: str) -> bytes:
        try:
            return self._disk.read_file(f"{self._directory}/{name}") or b""
        except StorageFailure as failure:
            self._unreadable[name] = str(failure)
            return b""

    def _check_end(self, segments: list[Segment]) -> Iterator[Finding]:
        flushed = self._known.recovery_point or 0
        if self._end_offset < flushed and (not segments or not self._known.is_clean):
            what = "the log ends too early" if segments else "all segments are gone"
            file = segments[-1].path if segments else self._directory
            yield self._lost(FindingKind.END_LOST, file, None, self._end_offset, flushed, what)

    def _check_epochs_of(self, segments: list[SegmentFacts]) -> Iterator[Finding]:
        """Leader epochs from one segment to the next; gathers those that are right."""
        known = self._known
        is_complete = known.is_clean or (known.recovery_point or 0) >= self._end_offset
        noted = self._noted_epochs() if is_complete else None
        latest = noted.latest_epoch if noted is not None and noted.entries else None
        wrong = set()
        for (path, position, header), what in misplaced_epochs(segments, latest):
            wrong.add(header.base_offset)
            yield self._lost(FindingKind.LOST, path, position, header.base_offset, header.next_offset, what)
        for epoch, start in (entry for facts in segments for entry in facts.epochs):
            if start not in wrong and (not self._epochs or epoch > self._epochs[-1][0]):
                self._epochs.append((epoch, start))

    def _noted_epochs(self) -> EpochCache | None:
        """What the file of leader epochs says; None when it cannot be understood."""
        try:
            return EpochCache(decode_epochs(self._read(EPOCH_CHECKPOINT)))
        except BrokenCheckpoint:
            return None

    def _check_small_files(self, segments: list[Segment], names: set[str]) -> Iterator[Finding]:
        if not segments:
            return
        for name in sorted(names):
            parsed = parse_offset_file(name)
            if parsed is not None and parsed[1] == SNAPSHOT and decode_producers(self._read(name)) is None:
                yield from self._rebuilt(name, names, "its checksum does not match")
        end_snapshot = offset_file(self._end_offset, SNAPSHOT)
        if self._known.is_clean and self._end_offset > 0 and end_snapshot not in names:
            yield from self._rebuilt(end_snapshot, names, "")
        yield from self._check_epoch_file(names)
        content = self._read(PARTITION_METADATA)
        try:
            decode_topic_id(content)
        except BrokenCheckpoint as error:
            if not content and not any(segment.size for segment in segments):
                return  # the log was just being made
            consequence = "whose partition this is, is taken from the directory's name"
            yield from self._rebuilt(PARTITION_METADATA, names, str(error), consequence)
        content = self._read(KNOWN_GAPS)
        if KNOWN_GAPS in names and encode_gaps(decode_gaps(content)) != content:
            consequence = "offsets that are missing for a reason seem lost"
            yield from self._rebuilt(KNOWN_GAPS, names, "the file is damaged", consequence)

    def _check_epoch_file(self, names: set[str]) -> Iterator[Finding]:
        start_offset = self._known.log_start_offset
        up_to = self._end_offset if self._known.is_clean else min(self._known.recovery_point or 0, self._end_offset)
        cache = self._noted_epochs() if EPOCH_CHECKPOINT in names else EpochCache()
        if not (self._known.is_clean and self._known.is_start_known) and cache is not None and cache.entries:
            # Where the log starts is written after this file.
            start_offset = max(start_offset, cache.entries[0].start_offset)
        found = [(epoch, start) for epoch, start in self._epochs if start_offset <= start < up_to]
        if cache is None:
            yield from self._rebuilt(EPOCH_CHECKPOINT, names, "it holds no leader epochs")
        elif any(cache.epoch_at(start) != epoch for epoch, start in found):
            yield from self._rebuilt(EPOCH_CHECKPOINT, names, "it does not agree with the messages")
        elif self._known.is_clean and cache.entries and cache.entries[-1].start_offset > self._end_offset:
            yield from self._rebuilt(EPOCH_CHECKPOINT, names, "it names offsets that the log does not have")

"""Opening a log: which segments there are, how far they can be trusted, and what follows from their batches.

Rules: runs once per log before anybody uses it. After a clean stop it reads a few small files and the end of the last
segment, however much the log holds. After a crash it also reads everything past the recovery point.

How it works. Below the recovery point everything was synced and has been acknowledged; past it, pages may be missing,
zero or torn, and whole files may be gone. So the batches past it are checked one by one, and at the first that does not
hold the log is cut, later segments included; what is cut and was more than an unfinished write is kept in a file.
A fault below it, and any fault after a clean stop, is damage to acknowledged data. It stays where it is: the segment
notes which offsets cannot be read, and all others can. Only where the end of the log is in doubt does it not open. When
the recovery point itself cannot be read, only the very end of the log may be cut. A killed process leaves at most the
beginning of its last write; a log that was cut by more, or that ends below what was committed, says that it is damaged:
it lacks what others may count on.

Invariants: REC-1 nothing below the recovery point is ever cut; REC-2 what is cut, and snapshots of it, are gone durably
before the log is used; REC-3 producer state and epochs are those of the sound batches that are left; REC-4 no offset
that was handed out below the recovery point is ever handed out again.
Proved by: tests/unit/log/test_recovery.py, tests/properties/test_log_model.py
"""

from collections.abc import Callable
from itertools import pairwise
from typing import Final, NamedTuple

from martlet.base.disk import DirectoryEntry, Disk
from martlet.base.errors import DiskFull, LogDamaged
from martlet.base.ids import TopicPartition
from martlet.log.aborted_note import restore_note
from martlet.log.batch_order import EPOCH_MAX, NO_GAPS, NO_LIMIT, KnownGaps
from martlet.log.batch_survey import BatchSurvey, Damage
from martlet.log.checkpoints import BrokenCheckpoint, decode_offsets
from martlet.log.compaction_swap import finish_swaps
from martlet.log.epoch_cache import EpochCache
from martlet.log.epoch_recovery import read_epochs, recover_epochs
from martlet.log.file_names import ABORTED_INDEX, ABORTED_NOTE, DELETED, LOG, SNAPSHOT, parse_offset_file
from martlet.log.options import LogOptions
from martlet.log.producer_replay import NotedAborts, ProducerReplay, appended_at_ms, marker_at
from martlet.log.producer_snapshot import ProducerSnapshots
from martlet.log.producer_state import ProducerStates
from martlet.log.segment import Segment
from martlet.log.segment_list import SegmentList
from martlet.log.segment_opening import begin_again, cut_file, last_indexed, reopen_damaged, resume, start_recovery
from martlet.wire.batch import BatchHeader

_CUT: Final = ".cut"
_COPY_BYTES: Final = 1 << 20


class LogCheckpoint(NamedTuple):
    """What the log directory's checkpoints say of a log; `recovery_point` None means that it is not known."""

    recovery_point: int | None = 0
    log_start_offset: int = 0
    cleaned_offset: int = 0
    is_clean: bool = False
    high_watermark: int = 0
    """Everything below was committed when it was written down."""
    is_start_known: bool = False
    """Whether a log that begins after `log_start_offset` lacks its beginning."""
    epoch_max: int = EPOCH_MAX
    """No leader has had a greater epoch when the log was opened."""


class LoadedLog(NamedTuple):
    """A log as found on disk, ready for use."""

    segments: SegmentList
    epochs: EpochCache
    producers: ProducerStates
    snapshots: ProducerSnapshots
    log_start_offset: int
    end_offset: int
    flushed_offset: int
    newly_sealed: list[Segment]
    cut_bytes: int
    is_damaged: bool
    """Something was cut that was whole once: more than the write in which a process was killed."""
    lacks_committed: bool
    """It ends below what was known to be committed."""
    is_new: bool
    leftovers: list[str]
    """Files that an earlier process deleted, to be removed once a checkpoint says where the log starts now."""


def apply_floor(checkpoint: LogCheckpoint, content: bytes, partition: TopicPartition) -> LogCheckpoint:
    """What holds after a truncation that the checkpoints may not know of; the floor's file says how deep it went."""
    try:
        floor = decode_offsets(content)[partition]
    except (BrokenCheckpoint, KeyError):
        return checkpoint._replace(recovery_point=None, cleaned_offset=0, high_watermark=0, is_start_known=False)
    recovery_point = None if checkpoint.recovery_point is None else min(checkpoint.recovery_point, floor)
    return checkpoint._replace(
        recovery_point=recovery_point,
        log_start_offset=min(checkpoint.log_start_offset, floor),
        cleaned_offset=min(checkpoint.cleaned_offset, floor),
        high_watermark=min(checkpoint.high_watermark, floor),
        is_start_known=False,
    )


def load_log(
    disk: Disk,
    directory: str,
    options: LogOptions,
    checkpoint: LogCheckpoint,
    now_ms: int,
    *,
    gaps: KnownGaps = NO_GAPS,
    on_damage: Callable[[], None] = lambda: None,
) -> LoadedLog:
    """Everything of a partition's directory; raises LogDamaged when it is in doubt where the log ends.

    `on_damage` is called before anything is cut that was whole once: afterwards there is no trace of it.
    """
    entries = disk.list_directory(directory)
    if finish_swaps(disk, directory, entries):
        entries = disk.list_directory(directory)
    recovery = _Recovery(disk, directory, options, checkpoint, now_ms, on_damage)
    recovery.gaps = gaps
    return recovery.run(entries)


class _Recovery:
    """One opening of a log: what has been found so far."""

    def __init__(
        self,
        disk: Disk,
        directory: str,
        options: LogOptions,
        checkpoint: LogCheckpoint,
        now_ms: int,
        on_damage: Callable[[], None],
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._options = options
        self._checkpoint = checkpoint
        self._now_ms = now_ms
        self._on_damage = on_damage
        self._segments: list[Segment] = []
        self._snapshots = ProducerSnapshots(disk, directory, [])
        self._producers = ProducerStates()
        self._epochs: list[tuple[int, int]] = []
        self._first_checked_offset = self._end_offset = 0
        self._newly_sealed: list[Segment] = []
        self._has_removed = False
        self._cut_bytes = 0
        self._is_damaged = False
        self._leftovers: list[str] = []
        self.gaps = NO_GAPS

    def run(self, entries: list[DirectoryEntry]) -> LoadedLog:
        self._take_stock(entries)
        is_new = not self._segments
        if is_new:
            self._segments.append(self._first_segment())
        checkpoint = self._checkpoint
        if checkpoint.is_clean:
            self._resume()
        else:
            self._check_and_cut()
        log_start_offset = self._start_offset()
        self._check_reach(log_start_offset)
        self._segments[-1].next_offset = self._end_offset
        self._clear_up()
        segments = SegmentList(self._segments)
        flushed_offset = self._end_offset
        if not checkpoint.is_clean:
            flushed_offset = min(self._end_offset, max(log_start_offset, checkpoint.recovery_point or 0))
        return LoadedLog(
            segments=segments,
            epochs=recover_epochs(
                self._disk,
                self._directory,
                segments,
                self._epochs,
                checked=(self._first_checked_offset, self._end_offset),
                log_start_offset=log_start_offset,
            ),
            producers=self._producers,
            snapshots=self._snapshots,
            log_start_offset=log_start_offset,
            end_offset=self._end_offset,
            flushed_offset=flushed_offset,
            newly_sealed=self._newly_sealed,
            cut_bytes=self._cut_bytes,
            is_damaged=self._is_damaged or self._end_offset < checkpoint.high_watermark,
            lacks_committed=self._end_offset < checkpoint.high_watermark,
            is_new=is_new,
            leftovers=self._leftovers,
        )

    def _start_offset(self) -> int:
        """Where the log starts: at its first segment, unless one before it was flushed, is missing and not deleted."""
        checkpoint, first_offset = self._checkpoint, self._segments[0].base_offset
        start_offset = self.gaps.end_of(checkpoint.log_start_offset)
        was_flushed = checkpoint.recovery_point is None or start_offset < checkpoint.recovery_point
        if checkpoint.is_start_known and was_flushed and start_offset < first_offset and not self._leftovers:
            return start_offset
        return max(checkpoint.log_start_offset, first_offset)

    def _take_stock(self, entries: list[DirectoryEntry]) -> None:
        """Find segments and snapshots in the directory, and what was deleted before."""
        segments: list[Segment] = []
        snapshots: list[int] = []
        indexed: list[int] = []
        interval = self._options.index_interval_bytes
        for name, is_directory, size in entries:
            parsed = None if is_directory else parse_offset_file(name)
            if parsed is None:
                continue
            offset, suffix = parsed
            if suffix.endswith(DELETED):
                self._leftovers.append(f"{self._directory}/{name}")
            elif suffix == LOG:
                segment = Segment(
                    self._disk, self._directory, offset, size=size, index_interval_bytes=interval, gaps=self.gaps
                )
                segments.append(segment)
            elif suffix == SNAPSHOT:
                snapshots.append(offset)
            elif suffix == ABORTED_INDEX:
                indexed.append(offset)
        if indexed or any(name == ABORTED_NOTE for name, _, _ in entries):
            restore_note(self._disk, self._directory, indexed)
        while len(segments) > 1 and segments[1].base_offset <= self._checkpoint.log_start_offset:
            # Deleted, but the removal did not survive a crash.
            segments.pop(0).files.discard()
            self._has_removed = True
        for segment, following in pairwise(segments):
            segment.is_sealed = True
            segment.next_offset = following.base_offset
        if segments:
            segments[-1].next_offset = NO_LIMIT
        self._segments = segments
        self._snapshots = ProducerSnapshots(self._disk, self._directory, snapshots)

    def _first_segment(self) -> Segment:
        start, flushed = self._checkpoint.log_start_offset, self._checkpoint.recovery_point
        if flushed is not None and flushed > start:
            raise LogDamaged(f"{self._directory}: no segments, though offsets up to {flushed} were flushed")
        interval = self._options.index_interval_bytes
        return Segment.create(self._disk, self._directory, start, index_interval_bytes=interval, gaps=self.gaps)

    def _resume(self) -> None:
        """Go on as a clean stop left the log; only the last few batches are read."""
        segment, ended_at = self._segments[-1], self._checkpoint.recovery_point
        segment.epochs = EpochCache([(max(0, self._latest_epoch_on_disk()), 0)])
        position, self._first_checked_offset = last_indexed(segment)
        survey = segment.survey(position, next_offset=self._first_checked_offset, until=ended_at)
        for _, header in survey:
            self._note_epoch(header)
        self._end_offset = self.gaps.end_of(survey.next_offset)
        if survey.damage:
            self._resume_damaged(segment, survey, ended_at)
        else:
            segment.trust.checked_from(position)
            resume(segment, position, self._first_checked_offset)
        self._replay().mend_aborted(segment)
        self._producers = self._producers_at(self._end_offset)

    def _resume_damaged(self, segment: Segment, survey: BatchSurvey, ended_at: int | None) -> None:
        """Go on where the log ended, with what is sound, if it is certain where that was (REC-4)."""
        last = survey.damage[-1]
        is_end_lost = last.next_offset > survey.next_offset or last.end == segment.size > last.position
        is_certain = ended_at is not None and (not is_end_lost or last.end > last.position or self._is_end_agreed())
        if not is_certain:
            raise segment.trust.error(last)
        self._end_offset = max(survey.next_offset, ended_at or 0)
        reopen_damaged(segment, self._end_offset)

    def _is_end_agreed(self) -> bool:
        """Whether two checkpoints say the same: one alone may be damaged itself."""
        return self._checkpoint.high_watermark == self._checkpoint.recovery_point

    def _latest_epoch_on_disk(self) -> int:
        """After a clean stop no batch has a later leader epoch than the file that remembers them."""
        latest = [epoch for epoch, _ in read_epochs(self._disk, self._directory)[-1:]]
        return min([self._checkpoint.epoch_max, *latest])

    def _check_and_cut(self) -> None:
        """Check all that may have suffered in a crash, and cut the log at the first fault that may be cut."""
        segments, trusted = self._segments, self._checkpoint.recovery_point or 0
        number = len(segments) - 1
        # A segment that ends at the recovery point was perhaps sealed after it: its batches are safe, its indexes may
        # lack their ends.
        while number > 0 and segments[number].base_offset >= trusted:
            number -= 1
        position, self._end_offset = start_recovery(segments[number], trusted)
        self._producers = self._producers_at(self._end_offset)
        if segments[number].trust.damage:
            # The walk for the producers has met it, and knows more than the indexes by now.
            self._producers = self._producers_at(segments[number].base_offset)
            position, self._end_offset = begin_again(segments[number])
        if segments[number].aborted.is_damaged:
            position, self._end_offset = begin_again(segments[number])
            self._producers = self._producers_at(self._end_offset)
            segments[number].aborted.clear()
        noted = NotedAborts(segments[number], self._end_offset)
        segments[number].aborted.truncate(self._end_offset)
        self._first_checked_offset = self._end_offset
        while number < len(segments):
            segment = segments[number]
            is_last = number == len(segments) - 1
            until = None if is_last else segments[number + 1].base_offset
            survey = segment.survey(
                position, next_offset=self._end_offset, until=until, epoch_max=self._checkpoint.epoch_max
            )
            fault = self._check_segment(segment, survey, noted)
            if fault is not None:
                if self._end_offset < trusted or (self._checkpoint.recovery_point is None and not is_last):
                    raise segment.trust.error(fault)
                is_unfinished = is_last and survey.ends_unfinished
                if not is_unfinished:
                    self._on_damage()
                    self._is_damaged = True
                self._cut(number, fault.position, is_worth_keeping=not is_unfinished)
            elif not is_last:
                segment.seal(segments[number + 1].base_offset)
                self._newly_sealed.append(segment)
                start_recovery(segments[number + 1], segment.next_offset)
                noted = NotedAborts(segments[number + 1], segment.next_offset)
                segments[number + 1].aborted.clear()
                self._end_offset = segment.next_offset
            segment.files.save_indexes()
            number, position = number + 1, 0

    def _check_segment(self, segment: Segment, survey: BatchSurvey, noted: NotedAborts) -> Damage | None:
        """Take in what the sound batches say, up to damage that may be cut off: that is returned.

        Damage to what was flushed is noted in the segment and stays, if it is certain which offsets it takes up.
        """
        now_ms, producers = self._now_ms, self._producers
        latest_epoch = self._epochs[-1][0] if self._epochs else -1
        start = survey.position
        for at, header in survey:
            if survey.damage and not self._may_stay(survey.damage[-1]):
                break
            segment.note_batch(at, header.last_offset, header)
            self._end_offset = header.next_offset
            if header.partition_leader_epoch > latest_epoch:
                latest_epoch = header.partition_leader_epoch
                self._note_epoch(header)
            if header.producer_id >= 0:
                self._take_noted(segment, noted, header.base_offset)
                noted.met(header.last_offset)
                marker = marker_at(segment, at, header)
                aborted = producers.record(header, header.last_offset, appended_at_ms(header, now_ms), marker)
                if aborted is not None:
                    segment.aborted.add(aborted)
        for damage in survey.damage:
            if not self._may_stay(damage):
                return damage
            self._end_offset = max(self._end_offset, damage.next_offset)
        self._take_noted(segment, noted, self._end_offset)
        segment.next_offset = self._end_offset
        segment.trust.note_damage(survey.damage)
        if survey.damage:
            segment.known.forget_recent()
        segment.trust.checked_from(survey.damage[-1].end if survey.damage else start)
        return None

    def _take_noted(self, segment: Segment, noted: NotedAborts, offset: int) -> None:
        """What was aborted by markers before `offset` that are damaged stays so."""
        for aborted in noted.before(min(offset, self._checkpoint.recovery_point or 0), self._producers):
            segment.aborted.add(aborted)

    def _may_stay(self, damage: Damage) -> bool:
        """Whether it is in what was flushed, and it is certain where the log goes on behind it."""
        trusted = self._checkpoint.recovery_point
        is_certain = damage.first_offset < damage.next_offset
        return is_certain and (trusted is None or damage.first_offset < trusted >= damage.next_offset)

    def _cut(self, number: int, position: int, *, is_worth_keeping: bool) -> None:
        """End the log at `position` of segment `number`; what was whole once is kept in a file."""
        segments = self._segments
        if is_worth_keeping:
            self._keep_cut(segments[number], position)
        self._cut_bytes = segments[number].size - position
        # The newest first: a crash on the way leaves a log that is cut again at the same place.
        for obsolete in reversed(segments[number + 1 :]):
            self._cut_bytes += obsolete.size
            obsolete.files.discard()
            self._has_removed = True
        del segments[number + 1 :]
        cut_file(segments[number], position)

    def _keep_cut(self, segment: Segment, position: int) -> None:
        """Copy the end of a segment that is about to be cut off, for an operator, if there is space."""
        copy = self._disk.open(f"{segment.path}{_CUT}", create=True)
        try:
            copy.truncate(0)
            while position < segment.size:
                piece = segment.file.pread(_COPY_BYTES, position)
                if not piece:
                    return
                copy.append(piece)
                position += len(piece)
        except DiskFull:
            self._disk.remove(copy.path)

    def _check_reach(self, log_start_offset: int) -> None:
        end_offset, flushed = self._end_offset, self._checkpoint.recovery_point
        if flushed is not None and end_offset < flushed:
            raise LogDamaged(
                f"{self._directory}: the log ends at offset {end_offset}, but all up to {flushed} was flushed"
            )
        if end_offset < log_start_offset:
            raise LogDamaged(f"{self._directory}: the log ends at {end_offset}, before its start {log_start_offset}")

    def _clear_up(self) -> None:
        """Make removals durable before anything is appended (REC-2)."""
        has_lost_snapshots = self._snapshots.remove_beyond(self._end_offset)
        if has_lost_snapshots or self._cut_bytes or self._has_removed:
            self._disk.sync_directory(self._directory)
        self._snapshots.keep_only({segment.base_offset for segment in self._segments})

    def _producers_at(self, offset: int) -> ProducerStates:
        expiration_ms = self._options.producer_id_expiration_ms
        return self._replay().producers_at(offset, self._now_ms, expiration_ms=expiration_ms)

    def _replay(self) -> ProducerReplay:
        return ProducerReplay(self._snapshots, SegmentList(self._segments))

    def _note_epoch(self, header: BatchHeader) -> None:
        if not self._epochs or header.partition_leader_epoch > self._epochs[-1][0]:
            self._epochs.append((header.partition_leader_epoch, header.base_offset))

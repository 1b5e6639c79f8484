"""A partition's log against a list, on a disk that crashes: appends, reads, rolls, cuts, restarts and power cuts.

The model is the list of batches ever appended and not cut. After every crash the log must hold a prefix of that list
that reaches at least to what had been flushed, byte for byte; epochs and producers must be those of that prefix. A
crash may strike between calls or inside one (`stop_after`), where the call may have happened, not happened, or, for a
flush, have happened in part. Files that only help (indexes, snapshots) may be damaged between a stop and a start.
"""

from contextlib import suppress
from typing import Literal, NamedTuple

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from sim.disk import SimDisk
from sim.failing_device import SimCrash
from sim.randomness import SimRandomness

from martlet.base.errors import ApiError, DiskFull, ErrorCode
from martlet.base.ids import TopicId, TopicPartition
from martlet.log import segment
from martlet.log.log_directory import LogDirectory
from martlet.log.log_slice import Appended, TimestampOffset
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.log.validation import check_client_batch
from martlet.wire.batch import BatchHeader, build_batch, read_batch_header, stamp_batch
from martlet.wire.records.record import read_records

PARTITION = TopicPartition("orders", 3)
OPTIONS = LogOptions(segment_bytes=1500, index_interval_bytes=250, retention_bytes=4000, retention_ms=-1, segment_ms=90)
NOW_MS = 1_000_000
Crash = Literal["process", "power"]
CRASHES = st.sampled_from(["process", "power"])


class Written(NamedTuple):
    """A batch as the log should hold it."""

    header: BatchHeader
    content: bytes


class Producer:
    """A client with idempotence: numbers its batches and can send an old one again."""

    def __init__(self, producer_id: int) -> None:
        self.producer_id = producer_id
        self.epoch = 0
        self.sequence = 0
        self.sent: list[tuple[bytes, int]] = []


class LogModel(RuleBasedStateMachine):
    """Drives a real LogDirectory on a SimDisk beside a list."""

    @initialize(
        seed=st.integers(0, 1 << 32), page_bytes=st.sampled_from([512, 4096]), small_bytes=st.sampled_from([0, 8192])
    )
    def start(self, seed: int, page_bytes: int, small_bytes: int) -> None:
        # The segments of this test are small; with 0 they are resumed as large ones are.
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(segment, "_SMALL_BYTES", small_bytes)
        self.disk = SimDisk(SimRandomness(seed), page_bytes=page_bytes)
        self.directory = LogDirectory(self.disk, "data", OPTIONS)
        self.directory.open(NOW_MS)
        self.log = self.directory.create(PARTITION, topic_id=TopicId(b"0123456789abcdef"), now_ms=NOW_MS)
        self.written: list[Written] = []
        self.start_offset = 0
        self.is_durable = False
        self.leader_epoch = 0
        self.time_ms = 1000
        self.producers = {7: Producer(7), 8: Producer(8)}

    def teardown(self) -> None:
        if hasattr(self, "patch"):
            self.patch.undo()

    # What the log is asked to do.

    @rule(count=st.integers(1, 4), value_bytes=st.integers(0, 300), late_ms=st.integers(0, 30))
    def append_plainly(self, count: int, value_bytes: int, late_ms: int) -> None:
        self.append(self.make_batch(count, value_bytes, late_ms))

    @rule(producer_id=st.sampled_from([7, 8]), count=st.integers(1, 4), value_bytes=st.integers(0, 300))
    def append_with_sequence(self, producer_id: int, count: int, value_bytes: int) -> None:
        producer = self.producers[producer_id]
        batch = self.make_batch(count, value_bytes, 0, producer)
        offset = self.append(batch)
        producer.sequence += count
        producer.sent.append((batch, offset))

    @rule(producer_id=st.sampled_from([7, 8]), back=st.integers(0, 6))
    def send_again(self, producer_id: int, back: int) -> None:
        """The last five of the current epoch are answered with their offset, older ones refused."""
        producer = self.producers[producer_id]
        if back >= len(producer.sent):
            return
        batch, offset = producer.sent[-1 - back]
        known = {entry[0] for entry in self.window_of(self.log, producer_id)}
        if read_batch_header(batch).base_sequence in known:
            answer = self.append_to_log(batch)
            assert (answer.base_offset, answer.duplicate) == (offset, True)
        elif known:
            with pytest.raises(ApiError) as caught:
                self.append_to_log(batch)
            assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        self.check_ends()

    @rule(producer_id=st.sampled_from([7, 8]))
    def bump_producer(self, producer_id: int) -> None:
        self.producers[producer_id].epoch += 1
        self.producers[producer_id].sequence = 0
        self.producers[producer_id].sent.clear()

    @rule(producer_id=st.sampled_from([7, 8]))
    def skip_a_sequence(self, producer_id: int) -> None:
        producer = self.producers[producer_id]
        if not producer.sent or not self.window_of(self.log, producer_id):
            return
        with pytest.raises(ApiError) as caught:
            self.append_to_log(self.make_batch(1, 5, 0, producer, skipped=3))
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    @rule(room_bytes=st.integers(0, 300), value_bytes=st.integers(100, 300))
    def append_to_a_full_disk(self, room_bytes: int, value_bytes: int) -> None:
        """Refused or not, the log is sound, and with space it goes on."""
        self.disk.capacity_bytes = self.disk.used_bytes() + room_bytes
        with suppress(DiskFull):
            self.append(self.make_batch(2, value_bytes, 0))
        self.check_ends()
        self.disk.capacity_bytes = None

    @rule(writes_nothing=st.booleans())
    def change_leader(self, writes_nothing: bool) -> None:
        self.leader_epoch += 1
        if writes_nothing:
            self.log.assign_epoch(self.leader_epoch)

    @rule()
    def roll(self) -> None:
        self.log.roller.roll(NOW_MS)

    @rule()
    def flush(self) -> None:
        self.log.durability.flush()
        self.is_durable = True

    @rule(more=st.integers(1, 3))
    def flush_while_appending(self, more: int) -> None:
        ticket = self.log.durability.begin_flush()
        if ticket is None:
            return
        before = self.log.end_offset
        ticket.sync()
        for _ in range(more):
            self.append(self.make_batch(2, 100, 0))
        self.log.durability.complete_flush(ticket)
        assert self.log.durability.flushed_offset == before
        self.is_durable = True

    @rule()
    def checkpoint(self) -> None:
        self.directory.checkpoint()

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        span = self.log.end_offset - self.log.log_start_offset
        offset = self.log.log_start_offset + round(span * fraction)
        self.log.truncate_to(offset, now_ms=NOW_MS)
        self.written = [batch for batch in self.written if batch.header.last_offset < offset]
        self.start_offset = min(self.start_offset, self.log.end_offset)
        self.forget_cut_sends()

    @rule(gap=st.integers(0, 50))
    def start_over(self, gap: int) -> None:
        offset = self.log.end_offset + gap
        self.log.truncate_fully_and_start_at(offset, now_ms=NOW_MS)
        self.written.clear()
        self.start_offset = offset
        self.forget_cut_sends()

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        span = self.log.end_offset - self.log.log_start_offset
        self.log.advance_log_start(self.log.log_start_offset + round(span * fraction))
        self.start_offset = self.log.log_start_offset

    @rule()
    def delete_old_segments(self) -> None:
        self.log.delete_old_segments(NOW_MS, up_to_offset=self.log.end_offset)
        assert self.log.log_start_offset >= self.start_offset
        assert self.log.segments.size_bytes() <= OPTIONS.retention_bytes + OPTIONS.segment_bytes + 2000
        self.start_offset = self.log.log_start_offset
        self.log.deleted_files.remove_due(NOW_MS + OPTIONS.file_delete_delay_ms, self.log.options.file_delete_delay_ms)

    @rule()
    def restart_cleanly(self) -> None:
        epochs = list(self.log.epochs.entries)
        producers = {id_: self.window_of(self.log, id_) for id_, _ in self.log.producers.items()}
        self.directory.close()
        before = self.disk.reads
        self.reopen()
        assert self.directory.started_clean
        assert self.disk.reads - before < 25, "a clean start reads a few small things only"
        assert self.log.end_offset == self.log.durability.flushed_offset == self.log.durability.recovery_point
        assert self.log.log_start_offset == self.start_offset
        assert self.log.epochs.entries[-1:] == epochs[-1:] or not epochs, "an epoch without records stays"
        self.check_epochs()
        assert {id_: self.window_of(self.log, id_) for id_, _ in self.log.producers.items()} == producers
        self.is_durable = True

    @rule(data=st.data(), suffix=st.sampled_from([".index", ".timeindex", ".snapshot"]))
    def restart_with_a_damaged_file(self, data: st.DataObject, suffix: str) -> None:
        """What only helps may be damaged: the log finds out and does without."""
        self.directory.close()
        place = f"data/{PARTITION}"
        sizes = {entry.name: entry.size for entry in self.disk.list_directory(place) if entry.name.endswith(suffix)}
        names = sorted(name for name, size in sizes.items() if size)
        if names:
            name = data.draw(st.sampled_from(names))
            if data.draw(st.booleans()):
                self.disk.flip_bit(f"{place}/{name}", data.draw(st.integers(0, 8 * sizes[name] - 1)))
            else:
                self.disk.overwrite(f"{place}/{name}", 0, bytes(sizes[name]))
        self.reopen()
        self.is_durable = True
        self.check_producers()
        self.forget_cut_sends()

    @rule(kind=CRASHES)
    def crash(self, kind: Crash) -> None:
        self.recover(kind, self.written, self.log.durability.flushed_offset)

    @rule(kind=CRASHES, changes=st.integers(0, 4), value_bytes=st.integers(0, 600))
    def crash_while_appending(self, kind: Crash, changes: int, value_bytes: int) -> None:
        flushed = self.log.durability.flushed_offset
        batch = bytearray(self.make_batch(2, value_bytes, 0))
        stamp_batch(batch, 0, self.log.end_offset, self.leader_epoch)
        in_flight = _written(batch)
        self.disk.stop_after(changes)
        with suppress(SimCrash):
            self.log.append(memoryview(batch), in_flight.header, leader_epoch=self.leader_epoch, now_ms=NOW_MS)
        self.recover(kind, [*self.written, in_flight], flushed)

    @rule(
        kind=CRASHES,
        changes=st.integers(0, 12),
        action=st.sampled_from(["flush", "checkpoint", "close", "roll", "delete", "truncate", "start over"]),
    )
    def crash_during(self, kind: Crash, changes: int, action: str) -> None:
        flushed, end, start = self.log.durability.flushed_offset, self.log.end_offset, self.log.log_start_offset
        middle = (start + end) // 2
        self.disk.stop_after(changes)
        try:
            if action == "flush":
                self.log.durability.flush()
            elif action == "checkpoint":
                self.directory.checkpoint()
            elif action == "close":
                self.directory.close()
            elif action == "roll":
                self.log.roller.roll(NOW_MS)
            elif action == "delete":
                self.log.delete_old_segments(NOW_MS, up_to_offset=end)
            elif action == "truncate":
                kept = [batch.header.next_offset for batch in self.written if batch.header.last_offset < middle]
                flushed = min(flushed, kept[-1] if kept else 0)
                self.log.truncate_to(middle, now_ms=NOW_MS)
            else:
                flushed = 0
                self.log.truncate_fully_and_start_at(end + 10, now_ms=NOW_MS)
        except SimCrash:
            pass
        if action == "start over":
            self.recover(kind, self.written, flushed, may_be_empty_at=end + 10)
        else:
            self.recover(kind, self.written, flushed)

    # What must be true of what is there.

    @invariant()
    def log_is_the_list(self) -> None:
        if not hasattr(self, "log"):
            return
        self.check_ends()
        assert self.read_all(max_bytes=700) == self.visible()

    @precondition(lambda self: bool(self.written))
    @rule(data=st.data(), max_bytes=st.integers(1, 3000), at_least_one=st.booleans())
    def read_somewhere(self, data: st.DataObject, max_bytes: int, at_least_one: bool) -> None:
        start, end = self.log.log_start_offset, self.log.end_offset
        offset = data.draw(st.integers(start, end))
        bound = data.draw(st.integers(start, end))
        place = self.log.locate(offset, max_bytes=max_bytes, end_offset=bound, at_least_one=at_least_one)
        content = place.read()
        assert len(content) == place.size
        expected = [batch for batch in self.written if batch.header.last_offset >= offset]
        expected = [batch for batch in expected if batch.header.last_offset < bound]
        allowed = b"".join(batch.content for batch in expected)
        assert allowed.startswith(content), "whole batches from the offset on"
        if expected and expected[0].header.base_offset <= offset < bound:
            first = len(expected[0].content)
            assert place.size <= max_bytes or (at_least_one and place.size == first)
            assert place.size >= first or first > max_bytes
        boundaries = {0}
        for batch in expected:
            boundaries.add(max(boundaries) + len(batch.content))
        assert place.size in boundaries

    @precondition(lambda self: bool(self.written))
    @rule(data=st.data())
    def search_by_time(self, data: st.DataObject) -> None:
        records = [
            record
            for batch in self.visible()
            for record in read_records(batch, 1 << 20)
            if record.offset >= self.log.log_start_offset
        ]
        wanted = data.draw(st.integers(900, self.time_ms + 50))
        end = self.log.end_offset
        first = next((record for record in records if record.timestamp_ms >= wanted), None)
        found = self.log.times_below(end).first_at(wanted)
        assert (found and found[:2]) == (first and (first.timestamp_ms, first.offset))
        latest = max(records, key=lambda record: record.timestamp_ms, default=None)
        found = self.log.times_below(end).latest()
        assert (found and found[:2]) == (latest and (latest.timestamp_ms, latest.offset))
        if isinstance(found, TimestampOffset):
            assert found.leader_epoch == self.log.epochs.epoch_at(found.offset)

    @rule(below=st.integers(1, 5))
    def read_outside(self, below: int) -> None:
        for offset in (self.log.log_start_offset - below, self.log.end_offset + below):
            with pytest.raises(ApiError) as caught:
                self.log.locate(offset, max_bytes=100, end_offset=self.log.end_offset, at_least_one=True)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE

    # Inside.

    def make_batch(
        self, count: int, value_bytes: int, late_ms: int, producer: Producer | None = None, skipped: int = 0
    ) -> bytes:
        self.time_ms += 7
        records = [(self.time_ms - late_ms + number, b"key", b"v" * value_bytes, ()) for number in range(count)]
        if producer is None:
            return build_batch(records)
        return build_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=producer.sequence + skipped,
        )

    def append(self, batch: bytes) -> int:
        stamped = bytearray(batch)
        expected = self.log.end_offset
        answer = self.append_to_log(stamped)
        assert not answer.duplicate
        assert answer.base_offset == expected
        self.written.append(_written(stamped))
        return answer.base_offset

    def append_to_log(self, batch: bytes | bytearray) -> Appended:
        buffer = batch if isinstance(batch, bytearray) else bytearray(batch)
        header = check_client_batch(memoryview(buffer), OPTIONS, now_ms=NOW_MS, produce_version=9)
        return self.log.append(memoryview(buffer), header, leader_epoch=self.leader_epoch, now_ms=NOW_MS)

    def recover(self, kind: Crash, history: list[Written], flushed: int, may_be_empty_at: int | None = None) -> None:
        start_before, was_durable = self.log.log_start_offset, self.is_durable
        self.disk.crash(kind)
        self.leader_epoch += 1
        self.directory = LogDirectory(self.disk, "data", OPTIONS)
        self.directory.open(NOW_MS)
        assert not self.directory.failures, self.directory.failures
        found = self.directory.get(PARTITION)
        if found is None:
            assert kind == "power"
            assert not was_durable
            assert flushed == 0 or not history
            found = self.directory.create(PARTITION, topic_id=TopicId(b"0123456789abcdef"), now_ms=NOW_MS)
        self.log = found
        if may_be_empty_at is not None and self.log.log_start_offset == self.log.end_offset == may_be_empty_at:
            history, flushed = [], may_be_empty_at
            start_before = may_be_empty_at
        end = self.log.end_offset
        assert end >= flushed
        if kind == "process" and may_be_empty_at is None and flushed == self.log.durability.recovery_point:
            assert end >= flushed
        assert self.log.log_start_offset <= max(start_before, end)
        self.written = [batch for batch in history if batch.header.last_offset < end]
        assert not self.written or self.written[-1].header.next_offset == end or not self.visible()
        self.start_offset = self.log.log_start_offset
        self.forget_cut_sends()
        self.is_durable = self.log.durability.flushed_offset > 0
        self.check_epochs()
        self.check_producers()

    def reopen(self) -> None:
        self.directory = LogDirectory(self.disk, "data", OPTIONS)
        self.directory.open(NOW_MS)
        assert not self.directory.failures
        log = self.directory.get(PARTITION)
        assert log is not None
        self.log = log

    def check_ends(self) -> None:
        assert self.log.log_start_offset == self.start_offset
        if self.written:
            assert self.log.end_offset == self.written[-1].header.next_offset
        assert self.log.durability.recovery_point <= self.log.durability.flushed_offset <= self.log.end_offset

    def visible(self) -> list[bytes]:
        return [batch.content for batch in self.written if batch.header.last_offset >= self.log.log_start_offset]

    def read_all(self, *, max_bytes: int) -> list[bytes]:
        found: list[bytes] = []
        offset, end = self.log.log_start_offset, self.log.end_offset
        while offset < end:
            place = self.log.locate(offset, max_bytes=max_bytes, end_offset=end, at_least_one=True)
            content = place.read()
            assert content, "the end of the log can be reached"
            while content:
                header = read_batch_header(content)
                assert header.base_offset <= max(offset, header.base_offset)
                found.append(content[: header.size])
                content, offset = content[header.size :], header.next_offset
        return found

    def check_epochs(self) -> None:
        """The epochs that have records are those in the batches (REP-12)."""
        entries = self.log.epochs.entries
        ends = [entry.start_offset for entry in entries[1:]] + [self.log.end_offset]
        with_records = [entry for entry, end in zip(entries, ends, strict=False) if end > entry.start_offset]
        expected: list[tuple[int, int]] = []
        for batch in self.written:
            if batch.header.last_offset >= self.log.log_start_offset:
                epoch = batch.header.partition_leader_epoch
                if not expected or expected[-1][0] != epoch:
                    expected.append((epoch, max(batch.header.base_offset, self.log.log_start_offset)))
        assert [tuple(entry) for entry in with_records] == expected

    def check_producers(self) -> None:
        """Windows are those of the batches; only what lies before the first segment may have been forgotten."""
        for producer_id in (7, 8):
            expected: list[tuple[int, int, int]] = []
            epoch = -1
            for batch in self.written:
                header = batch.header
                if header.producer_id == producer_id:
                    expected = expected if header.producer_epoch == epoch else []
                    epoch = header.producer_epoch
                    expected.append((header.base_sequence, header.last_sequence, header.last_offset))
            expected = expected[-5:]
            found = self.window_of(self.log, producer_id)
            first_base = self.log.segments.first.base_offset
            kept = [entry for entry in expected if entry[2] >= first_base]
            assert found == expected[len(expected) - len(found) :]
            assert len(found) >= len(kept)

    def forget_cut_sends(self) -> None:
        """After a cut clients go on from what is left, as they do when they hear where the log ends."""
        for producer in self.producers.values():
            mine = [
                batch
                for batch in self.written
                if (batch.header.producer_id, batch.header.producer_epoch) == (producer.producer_id, producer.epoch)
            ]
            entry = self.log.producers.get(producer.producer_id)
            if entry is None or entry.epoch < producer.epoch or not mine:
                producer.epoch += 1
                producer.sequence = 0
                producer.sent.clear()
            else:
                producer.sequence = entry.next_sequence
                offsets = {batch.header.base_offset for batch in mine}
                producer.sent = [(sent, offset) for sent, offset in producer.sent if offset in offsets]

    @staticmethod
    def window_of(log: PartitionLog, producer_id: int) -> list[tuple[int, int, int]]:
        entry = log.producers.get(producer_id)
        return [] if entry is None else [tuple(batch[:3]) for batch in entry.batches]  # type: ignore[misc]


def _written(batch: bytes | bytearray) -> Written:
    return Written(read_batch_header(batch), bytes(batch))


TestLogModel = LogModel.TestCase
TestLogModel.settings = settings(
    max_examples=120,
    stateful_step_count=40,
    deadline=None,
    report_multiple_bugs=False,
    suppress_health_check=[HealthCheck.too_slow],
)

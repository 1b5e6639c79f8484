"""Any transactions on any log: a reader of committed data gets what was committed, whatever the log went through.

The reader is the one of Kafka's clients: it leaves out a producer's batches from the first offset of an aborted
transaction on, up to the producer's next abort marker. The model is a list with one event an offset.
"""

from dataclasses import replace
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st
from sim.disk import SimDisk

from martlet.log.file_names import ABORTED_NOTE
from martlet.log.partition_log import PartitionLog
from martlet.log.recovery import LogCheckpoint
from martlet.wire.batch import iterate_batches, read_marker
from martlet.wire.records.record import read_records
from tests.unit.log.log_builders import (
    DIRECTORY,
    NOW_MS,
    SMALL,
    append,
    batch_of,
    checkpointed,
    close_cleanly,
    marker,
    new_disk,
    open_log,
    transactional,
)

OPTIONS = replace(SMALL, segment_bytes=500, compact=True, delete=False, min_cleanable_dirty_ratio=0.01,
                  delete_retention_ms=0)  # fmt: skip
PLAIN = 9


class Event(NamedTuple):
    """What is at one offset: data, or a marker with its outcome."""

    producer: int
    key: bytes
    value: bytes
    outcome: bool | None = None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), st.sampled_from([1, 2, 3, PLAIN]), st.sampled_from([b"a", b"b", b"c"])),
        st.tuples(st.just("end"), st.sampled_from([1, 2, 3]), st.booleans()),
        st.tuples(st.sampled_from(["roll", "checkpoint", "compact", "restart", "kill", "lose power"])),
        st.tuples(st.just("damage"), st.sampled_from(["indexes changed", "indexes gone", "note gone"])),
        st.tuples(st.just("truncate"), st.integers(0, 100)),
    ),
    min_size=10,
    max_size=50,
)


class World:
    """A log and the model of it."""

    def __init__(self) -> None:
        self.disk: SimDisk = new_disk()
        self.log: PartitionLog = open_log(self.disk, OPTIONS)
        self.known = LogCheckpoint()
        self.events: list[Event] = []
        self.compacted = 0

    def take(self, step: tuple[object, ...]) -> None:
        match step:
            case ("write", int(producer), bytes(key)):
                self._write(producer, key)
            case ("end", int(producer), bool(outcome)):
                append(self.log, marker(producer, is_commit=outcome))
                self.events.append(Event(producer, b"", b"", outcome))
            case ("truncate", int(percent)):
                end = self.compacted + (len(self.events) - self.compacted) * percent // 100
                self.log.truncate_to(end, now_ms=NOW_MS)
            case ("roll",):
                self.log.roller.roll(NOW_MS)
            case ("checkpoint",):
                self.known = checkpointed(self.log)
            case ("compact",):
                self._compact()
            case ("damage", str(how)):
                self._damage(how)
            case (str(how),):
                self._restart(how)
        del self.events[self.log.end_offset :]

    def _write(self, producer: int, key: bytes) -> None:
        value = b"%d" % len(self.events)
        if producer == PLAIN:
            append(self.log, batch_of(value, key=key))
        else:
            entry = self.log.producers.get(producer)
            sequence = 0 if entry is None else entry.next_sequence
            append(self.log, transactional(producer, value, key=key, sequence=sequence))
        self.events.append(Event(producer, key, value))

    def _compact(self) -> None:
        self.log.roller.roll(NOW_MS)
        self.known = checkpointed(self.log)
        plan = self.log.plan_compaction(NOW_MS, up_to_offset=self.log.end_offset)
        if plan is not None:
            plan.run()
            assert self.log.compaction.complete(plan)
            self.compacted = max(self.compacted, self.log.compaction.cleaned_offset)
            self.known = checkpointed(self.log)

    def _damage(self, how: str) -> None:
        """Damage or lose all indexes of aborted transactions, or what says that there are some, while nobody looks."""
        self.known = close_cleanly(self.log)
        for name, _, _ in self.disk.list_directory(DIRECTORY):
            path = f"{DIRECTORY}/{name}"
            is_index = name.endswith(".txnindex")
            if is_index and how == "indexes changed":
                self.disk.flip_bit(path, 20)
            elif (is_index and how == "indexes gone") or (name == ABORTED_NOTE and how == "note gone"):
                self.disk.remove(path)
        self._open()

    def _restart(self, how: str) -> None:
        if how == "restart":
            self.known = close_cleanly(self.log)
        elif how == "kill":
            self.disk.crash("process")
        else:
            self.log.durability.flush()  # the messages, but no index
            self.disk.crash("power")
        self._open()

    def _open(self) -> None:
        self.log = open_log(self.disk, OPTIONS, self.known)
        self.known = self.known._replace(is_clean=False)

    def committed(self) -> list[tuple[int, bytes, bytes]]:
        """Offset, key and value of what was committed, below the first undecided transaction."""
        outcomes: dict[int, bool] = {}
        outcome_at: dict[int, bool] = {}
        for offset in range(len(self.events) - 1, -1, -1):
            event = self.events[offset]
            if event.outcome is not None:
                outcomes[event.producer] = event.outcome
            elif event.producer == PLAIN:
                outcome_at[offset] = True
            elif event.producer in outcomes:
                outcome_at[offset] = outcomes[event.producer]
        end = next((at for at, one in enumerate(self.events) if one.outcome is None and at not in outcome_at), None)
        end = len(self.events) if end is None else end
        return [(at, *self.events[at][1:3]) for at in sorted(outcome_at) if outcome_at[at] and at < end]

    def read_committed(self, start: int = 0) -> list[tuple[int, bytes | None, bytes | None]]:
        """What Kafka's clients make of the log's answers, in several fetches."""
        log, found, offset = self.log, [], start
        log.high_watermark = log.end_offset
        end = log.last_stable_offset
        while offset < end:
            content = log.locate(offset, max_bytes=300, end_offset=end, at_least_one=True).read()
            batches = list(iterate_batches(content))
            following = batches[-1][1].next_offset if batches else end
            waiting = log.aborted_transactions(offset, following)
            leaving_out: set[int] = set()
            for position, header in batches:
                while waiting and waiting[0].first_offset <= header.last_offset:
                    leaving_out.add(waiting.pop(0).producer_id)
                batch = content[position : position + header.size]
                if header.is_control:
                    ended = read_marker(batch)
                    if ended is not None and not ended.is_commit:
                        leaving_out.discard(header.producer_id)
                elif header.record_count and not (header.is_transactional and header.producer_id in leaving_out):
                    found += [(one.offset, one.key, one.value) for one in read_records(batch, 1 << 20)]
            offset = following
        return [one for one in found if one[0] >= start]

    def check(self, start: int) -> None:
        expected = self.committed()
        found = self.read_committed()
        assert set(found) <= set(expected), "only what was committed is read"
        missing = [one for one in expected if one not in found]
        latest = {key: offset for offset, key, _ in expected}
        assert all(one[0] < min(latest[one[1]], self.compacted) for one in missing), "only what is compacted goes"
        assert found == sorted(found)
        assert self.read_committed(start) == [one for one in found if one[0] >= start]


@given(STEPS, st.integers(0, 40))
def test_a_reader_of_committed_data_gets_what_was_committed(steps: list[tuple[object, ...]], start: int) -> None:
    world = World()
    for step in steps:
        world.take(step)
        world.check(min(start, world.log.end_offset))

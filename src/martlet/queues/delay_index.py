"""When which message of a partition is due: sorted runs on disk, and in memory only what is due within seconds.

The index is derived from the log: a due time stands in the message's own header, so every replica builds the index for
itself, nothing more is written at a publish, and whatever is lost of it is read from the log again. New entries gather
in a buffer; a full buffer is sorted and becomes a run. One index serves all subscriptions of a partition: each asks for
what is due after its own position.

How it works: the near window holds what is due up to a few seconds from now, taken from the runs by their cursors. Who
asks within it is answered from memory; who is behind, after a pause or a restart, is answered by a merge of the runs.

Invariants:
QDI-1 A delayed message below `covered_end` is in exactly one run, in the buffer, or in an offset range of `missing`.
QDI-2 The near window holds every entry known here with `near_from` < due <= `near_to`; cursors are behind `near_to`.
QDI-3 A run is listed after it was written, and removed after it left the list. Nothing is flushed to the device: a run
that a power loss took is damaged, and its part of the log is read again.

Proved by: tests/unit/queues/test_delay_index.py, tests/properties/test_queue_delay_index.py
"""

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from struct import Struct, error
from typing import Final
from zlib import crc32

from martlet.base.disk import Disk
from martlet.base.invariant import invariant
from martlet.queues.delay_run import Coverage, DamagedRun, DelayRun, Entry, encode_run

RUN_ENTRIES: Final = 32_768
NEAR_MS: Final = 5_000
RUN_LIST: Final = "runs"
_LIST_HEADER: Final = Struct("<IqII")
"""Checksum of the rest, covered end, next serial, number of runs."""
_LIST_ENTRY: Final = Struct("<Iqq")
LAST_OFFSET: Final = (1 << 63) - 1
"""Greater than any: who has had everything up to an instant is at (instant, LAST_OFFSET)."""


class DelayIndex:
    """The delayed messages of one partition, in a directory of their own."""

    def __init__(self, disk: Disk, directory: str, *, run_entries: int = RUN_ENTRIES, near_ms: int = NEAR_MS) -> None:
        self._disk = disk
        self._directory = directory
        self._run_entries = run_entries
        self._near_ms = near_ms
        self._runs: list[DelayRun] = []
        self._buffer: list[Entry] = []
        self._near: list[Entry] = []
        self._near_from = self._near_to = -1
        self._far_due: int | None = None
        """When the first entry of the buffer behind the near window is due, or _NEVER; None while that is not known."""
        self._serial = 0
        self._is_closed = False
        self.covered_end = 0
        """The log has been looked at up to here; what is in the buffer is not on disk yet."""
        self.stored_end = 0
        """After a restart the log is read again from here on."""
        self.missing: list[Coverage] = []
        """Parts of the log before `stored_end` that must be read again, with `restore`."""

    def open(self, log_start: int) -> None:
        """Take in what is on disk; damaged runs become `missing`, and without a list of runs everything does."""
        self._disk.make_directory(self._directory)
        known = _decode_list(self._disk.read_file(f"{self._directory}/{RUN_LIST}"))
        self.covered_end = self.stored_end = log_start
        names = {RUN_LIST}
        if known is not None:
            stored_end, self._serial, listed = known
            self.covered_end = self.stored_end = max(stored_end, log_start)
            for serial, coverage in listed:
                if serial == _NO_RUN:
                    self.missing.append(coverage)
                else:
                    names.add(_name(serial))
                    self._open_run(_name(serial), coverage)
        for entry in self._disk.list_directory(self._directory):
            if entry.name not in names:
                self._disk.remove(f"{self._directory}/{entry.name}")

    def close(self) -> None:
        """Use no file any more; what was not flushed is read from the log again."""
        for run in self._runs:
            run.close()
        self._runs = []
        self._is_closed = True

    def __len__(self) -> int:
        """How many entries there are, those that are due and not forgotten included."""
        return sum(run.count for run in self._runs) + len(self._buffer)

    @property
    def is_complete(self) -> bool:
        """Whether nothing before `covered_end` is missing."""
        return not self.missing

    # --- filling

    def add(self, due_ms: int, offset: int) -> None:
        """The next delayed message of the log."""
        invariant(offset >= self.covered_end, "delayed messages are added in the order of the log")
        self._buffer.append((due_ms, offset))
        if self._near_from < due_ms <= self._near_to:
            insort(self._near, (due_ms, offset))
        elif self._far_due is not None and due_ms > self._near_to:
            self._far_due = min(self._far_due, due_ms)
        self.covered_end = offset + 1
        if len(self._buffer) >= self._run_entries:
            self.flush()

    def saw(self, end: int) -> None:
        """No message before `end` that was not added is delayed."""
        self.covered_end = max(self.covered_end, end)

    def flush(self) -> None:
        """Write the buffer as a run, and remember how far the log was looked at."""
        if self._is_closed:
            return
        if self._buffer:
            self._write_run(sorted(self._buffer), Coverage(self.stored_end, self.covered_end))
            self._buffer = []
            self._far_due = None
        self.stored_end = self.covered_end
        self._write_list()

    def missed(self, end: int) -> None:
        """The log was not looked at from `covered_end` to here: that part is missing now."""
        if end > self.covered_end:
            if self._buffer:
                self.flush()
            self.missing.append(Coverage(self.covered_end, end))
            self.covered_end = self.stored_end = end
            self._write_list()

    def misses_everything(self, log_start: int, end: int) -> None:
        """Its files cannot be used: all of the log is to be read again. Nothing is written."""
        for run in self._runs:
            run.close()
        self._runs, self._buffer, self._near = [], [], []
        self._near_from = self._near_to = -1
        self._far_due = None
        self.missing = [Coverage(log_start, end)] if end > log_start else []
        self.covered_end = self.stored_end = end

    def restore(self, part: Coverage, entries: Iterable[Entry]) -> None:
        """The delayed messages of a part of the log that was missing, or of the beginning of one."""
        whole = next((missing for missing in self.missing if missing.first == part.first), None)
        invariant(whole is not None and part.end <= whole.end, "only a part that is missing is restored")
        found = sorted(entries)
        if found:
            self._write_run(found, part)
        if whole is not None:
            self.missing.remove(whole)
            if part.end < whole.end:
                self.missing.append(Coverage(part.end, whole.end))
        for entry in found:
            if self._near_from < entry[0] <= self._near_to:
                insort(self._near, entry)
        self._write_list()

    def log_begins_at(self, offset: int) -> None:
        """What lies before this offset is no longer in the log."""
        gone = [run for run in self._runs if run.coverage.end <= offset]
        missing = [Coverage(max(part.first, offset), part.end) for part in self.missing if part.end > offset]
        if gone or missing != self.missing:
            self.missing = missing
            self._drop(gone)

    def truncate(self, end: int) -> None:
        """The log was cut: it ends before this offset now."""
        self._buffer = [entry for entry in self._buffer if entry[1] < end]
        self._far_due = None
        gone = [run for run in self._runs if run.coverage.end > end]
        known_end = min((run.coverage.first for run in gone), default=end)
        self._near = [entry for entry in self._near if entry[1] < min(known_end, end)]
        self.missing += [run.coverage for run in gone]
        self.missing = [Coverage(part.first, min(part.end, end)) for part in self.missing if part.first < end]
        self.covered_end = min(self.covered_end, end)
        self.stored_end = min(self.stored_end, end)
        self._drop(gone)

    def forget(self, upto_ms: int) -> None:
        """Every subscription has had what is due up to this time."""
        gone = [run for run in self._runs if run.dues[1] <= upto_ms]
        if gone:
            self._drop(gone)

    # --- asking

    def due(self, after: Entry, upto_ms: int, limit: int) -> list[Entry]:
        """Up to `limit` entries after this one that are due by then, in order.

        Who is given fewer has had everything up to then, and goes on from (upto_ms, LAST_OFFSET): a position that stays
        behind is answered by a merge of all runs.
        """
        if self._is_near(after) and upto_ms <= self._near_to + self._near_ms:
            if upto_ms > self._near_to:
                self._move_near(upto_ms, after)
            start = bisect_right(self._near, after)
            stop = bisect_right(self._near, (upto_ms, LAST_OFFSET))
            return self._near[start : min(stop, start + limit)]
        found = list(islice(self._merged(after, upto_ms), limit))
        if len(found) < limit and upto_ms > self._near_to:
            self._begin_near(upto_ms)
        return found

    def next_due_ms(self, after: Entry) -> int | None:
        """When the first entry after this one is due."""
        if self._is_near(after):
            at = bisect_right(self._near, after)
            if at < len(self._near):
                return self._near[at][0]
            if after[0] <= self._near_to:
                if self._far_due is None:
                    self._far_due = min((due for due, _ in self._buffer if due > self._near_to), default=_NEVER)
                far = [due for run in list(self._runs) if (due := self._next_due(run)) is not None]
                return min(far, default=None) if self._far_due == _NEVER else min((self._far_due, *far))
        return next((due for due, _ in self._merged(after, LAST_OFFSET)), None)

    def listed(self, after: Entry, limit: int) -> list[Entry]:
        """A page of what is scheduled, for people."""
        return list(islice(self._merged(after, LAST_OFFSET), limit))

    def pending(self, after: Entry) -> int:
        """How many entries come after this one."""
        count = sum(entry > after for entry in self._buffer)
        for run in list(self._runs):
            try:
                count += run.count - run.position_after(after)
            except DamagedRun:
                self._lose(run)
        return count

    def oldest_after(self, after: Entry) -> int | None:
        """Not above the lowest offset of the entries after this one; None without any."""
        oldest = [offset for due_ms, offset in self._buffer if (due_ms, offset) > after]
        oldest += [run.coverage.first for run in self._runs if (run.dues[1], LAST_OFFSET) > after]
        oldest += [part.first for part in self.missing]
        return min(oldest, default=None)

    def _next_due(self, run: DelayRun) -> int | None:
        try:
            return run.next_due
        except DamagedRun:
            self._lose(run)
            return None

    def _merged(self, after: Entry, upto_ms: int) -> Iterator[Entry]:
        """What comes after an entry, from everywhere; a run found damaged on the way becomes missing."""
        parts: list[Iterable[Entry]] = [sorted(entry for entry in self._buffer if entry > after)]
        parts += [self._run_after(run, after) for run in list(self._runs) if run.dues[1] >= after[0]]
        for entry in merge(*parts):
            if entry[0] > upto_ms:
                return
            yield entry

    def _run_after(self, run: DelayRun, after: Entry) -> Iterator[Entry]:
        try:
            yield from run.after(after)
        except DamagedRun:
            self._lose(run)

    # --- the near window

    def _is_near(self, after: Entry) -> bool:
        """Whether everything from there on up to `near_to` is in the window."""
        return after >= (self._near_from, LAST_OFFSET)

    def _begin_near(self, upto_ms: int) -> None:
        self._near, self._near_from, self._near_to, self._far_due = [], upto_ms, upto_ms, None
        for run in list(self._runs):
            try:
                run.cursor = run.position_after((upto_ms, LAST_OFFSET))
            except DamagedRun:
                self._lose(run)
        self._move_near(upto_ms, (upto_ms, LAST_OFFSET))

    def _move_near(self, now_ms: int, after: Entry) -> None:
        """Let the window reach from a little before now, and from where the asker is, to a little after."""
        near_to = now_ms + self._near_ms
        more = [entry for entry in self._buffer if self._near_to < entry[0] <= near_to]
        for run in list(self._runs):
            next_due = self._next_due(run)
            if next_due is None or next_due > near_to:
                continue
            try:
                more += run.take(near_to)
            except DamagedRun:
                self._lose(run)
        more.sort()
        self._near += more
        self._near_to = near_to
        self._far_due = None
        asked_from = after[0] if after[1] == LAST_OFFSET else after[0] - 1
        keep_from = max(self._near_from, min(now_ms - self._near_ms, asked_from))
        del self._near[: bisect_right(self._near, (keep_from, LAST_OFFSET))]
        self._near_from = keep_from

    # --- runs

    def _open_run(self, name: str, coverage: Coverage) -> None:
        try:
            if self._disk.exists(f"{self._directory}/{name}"):
                self._runs.append(DelayRun(self._disk, f"{self._directory}/{name}", name))
                return
        except DamagedRun:
            self._disk.remove(f"{self._directory}/{name}")
        self.missing.append(coverage)

    def _write_run(self, entries: Sequence[Entry], coverage: Coverage) -> None:
        name = _name(self._serial)
        self._serial += 1
        file = self._disk.open(f"{self._directory}/{name}", create=True)
        file.append(encode_run(entries, coverage))
        file.close()
        run = DelayRun(self._disk, f"{self._directory}/{name}", name)
        if self._near_to >= 0:
            run.cursor = run.position_after((self._near_to, LAST_OFFSET))
        self._runs.append(run)

    def _lose(self, run: DelayRun) -> None:
        """A run turned out to be damaged: its part of the log is to be read again."""
        if run in self._runs:
            self.missing.append(run.coverage)
            self._drop([run])
            self._near = [entry for entry in self._near if not run.coverage.first <= entry[1] < run.coverage.end]

    def _drop(self, gone: Sequence[DelayRun]) -> None:
        self._runs = [run for run in self._runs if run not in gone]
        self._write_list()
        for run in gone:
            run.close()
            self._disk.remove(f"{self._directory}/{run.name}")

    def _write_list(self) -> None:
        if self._is_closed:
            return  # the list on disk names runs that are no longer known here
        listed = [(int(run.name, 16), run.coverage) for run in self._runs]
        listed += [(_NO_RUN, part) for part in self.missing]
        body = _LIST_HEADER.pack(0, self.stored_end, self._serial, len(listed))[4:]
        body += b"".join(_LIST_ENTRY.pack(serial, *coverage) for serial, coverage in listed)
        self._disk.replace_file(f"{self._directory}/{RUN_LIST}", crc32(body).to_bytes(4, "little") + body)


_NEVER: Final = 1 << 63
_NO_RUN: Final = 0xFFFF_FFFF
"""Stands in the list for a part of the log that has to be read again."""


def _name(serial: int) -> str:
    return f"{serial:08x}"


def listed_runs(disk: Disk, directory: str) -> list[str] | None:
    """The names of the runs that an index at rest has; None when it has no list of them that can be read."""
    known = _decode_list(disk.read_file(f"{directory}/{RUN_LIST}"))
    return None if known is None else [_name(serial) for serial, _ in known[2] if serial != _NO_RUN]


def _decode_list(data: bytes | None) -> tuple[int, int, list[tuple[int, Coverage]]] | None:
    """Stored end, next serial and the runs; None for what is no list."""
    try:
        checksum, stored_end, serial, count = _LIST_HEADER.unpack_from(data or b"")
        entries = [
            _LIST_ENTRY.unpack_from(data or b"", _LIST_HEADER.size + _LIST_ENTRY.size * at) for at in range(count)
        ]
    except error:
        return None
    if data is None or crc32(data[4:]) != checksum:
        return None
    return stored_end, serial, [(number, Coverage(first, end)) for number, first, end in entries]

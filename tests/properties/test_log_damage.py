"""One place of a log changes at rest: no wrong offset or value is ever given out, and nothing intact is skipped.

The judge knows every batch as it was appended. It reads the log from its start to its end as consumers do, twice, once
from each offset in turn and once going on from batch to batch; what it gets must be what was there. An offset that it
does not get must be of a batch that was damaged, and be refused with an error that names the file.
"""

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim.disk import SimDisk

from martlet.base.errors import LogDamaged
from martlet.log.file_names import parse_offset_file
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from tests.damage.fields import CHANGES, FIELDS, changed
from tests.damage.judge import Refused, StoredBatch, Truth, batches_of
from tests.unit.log.log_builders import NOW_MS, PARTITION, append, batch_of, new_disk

_ROOT = "data/logs"
_LOG = f"{_ROOT}/orders-0"
_OPTIONS = LogOptions(segment_bytes=1500, index_interval_bytes=300, retention_ms=-1)
_BATCHES = 30


def _made(disk: SimDisk) -> LogDirectory:
    directory = LogDirectory(disk, _ROOT, _OPTIONS)
    directory.open(NOW_MS)
    log = directory.create(PARTITION, topic_id=b"0" * 16, now_ms=NOW_MS)  # type: ignore[arg-type]
    for number in range(_BATCHES):
        values = [b"%03d" % number * 8] * (1 + number % 3)
        append(log, batch_of(*values, timestamp_ms=NOW_MS + number), leader_epoch=1 + number // 10)
    return directory


def _batches_on(disk: SimDisk) -> list[StoredBatch]:
    found = []
    for entry in disk.list_directory(_LOG):
        parsed = parse_offset_file(entry.name)
        if parsed is not None and parsed[1] == ".log":
            path = f"{_LOG}/{entry.name}"
            found += batches_of(path, disk.read_file(path) or b"")
    return found


def _read(log: PartitionLog, offset: int) -> bytes:
    """What a fetch does; after a first failure the log knows which offsets are affected."""
    piece = log.locate(offset, max_bytes=500, end_offset=log.end_offset, at_least_one=True)
    try:
        return piece.read()
    except LogDamaged:
        log.segments.find_damage_at(piece)
        return log.locate(offset, max_bytes=500, end_offset=log.end_offset, at_least_one=True).read()


def _refused(log: PartitionLog, truth: Truth) -> set[int]:
    """Read everything, from the start and from each offset; the offsets that were answered with an error."""

    def read(offset: int) -> bytes:
        try:
            return _read(log, offset)
        except LogDamaged as damage:
            raise Refused from damage

    for offset in range(1, truth.end_offset):
        with suppress(Refused):
            truth.follow(read(offset), offset)
    return truth.refused(read)


def _restart(disk: SimDisk, directory: LogDirectory, *, is_clean: bool) -> None:
    if is_clean:
        directory.close()
    else:
        for log in directory:
            log.durability.flush()
        directory.checkpoint()
        directory.close(clean=False)


def _scrubbed(log: PartitionLog) -> bool:
    """Check all of it as the background does; whether it comes to an end, and has found anything."""
    for _ in range(200):
        try:
            piece = log.segments.next_unchecked(500)
        except LogDamaged:
            continue
        if piece is None:
            return bool(log.damage)
        try:
            piece.read()
        except LogDamaged:
            log.segments.find_damage_at(piece)
    raise AssertionError("a pass over the log does not end")


def _judge(disk: SimDisk, damaged: set[int], truth: Truth) -> None:
    stored = list(truth.batches)
    for number in range(3):  # what the first start finds, the second must not forget
        again = LogDirectory(disk, _ROOT, _OPTIONS)
        again.open(NOW_MS, epoch_max_for=lambda partition, topic_id: 3)
        log = again.get(PARTITION)
        if log is None:
            assert max(damaged) == truth.end_offset - 1, "only where the log ends may be in doubt"
            assert _LOG in str(again.failures[PARTITION])
            again.close(clean=False)
            continue
        assert log.end_offset == truth.end_offset, "no offset is given away again, and none is left out"
        found = number != 1 and _scrubbed(log)  # once before any reader has found anything, once after
        refused = _refused(log, truth)
        assert refused <= damaged, "what is intact can be read"
        assert (_scrubbed(log) if number == 1 else found) == bool(refused), "the background finds what readers find"
        for _ in range(2):
            batch = batch_of(b"more")
            stored.append(_stored(append(log, batch, leader_epoch=3).base_offset, bytes(batch)))
        truth = Truth(stored)
        assert _refused(log, truth) <= damaged, "what is intact can be read when more was appended"
        log.durability.flush()
        again.checkpoint()
        again.close(clean=False)


def _stored(offset: int, content: bytes) -> StoredBatch:
    return StoredBatch("", 0, offset, offset + 1, content)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_changed_field_costs_its_batch_and_no_other(data: st.DataObject) -> None:
    disk = new_disk()
    directory = _made(disk)
    _restart(disk, directory, is_clean=data.draw(st.booleans(), label="clean"))
    batches = _batches_on(disk)
    batch = batches[data.draw(st.integers(0, len(batches) - 1), label="batch")]
    field = data.draw(st.sampled_from(sorted(FIELDS)), label="field")
    at, new = changed(batch.content, field, data.draw(st.integers(0, len(CHANGES) - 1), label="change"))
    disk.overwrite(batch.path, batch.position + at, new)
    _judge(disk, set(batch.offsets), Truth(batches))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["gone", "empty", "half", "cut in a batch"])
@pytest.mark.parametrize("which", ["first", "middle", "last sealed", "active"])
def test_a_segment_that_is_not_whole_is_no_silent_gap(which: str, damage: str, is_clean: bool) -> None:
    disk = new_disk()
    directory = _made(disk)
    _restart(disk, directory, is_clean=is_clean)
    batches = _batches_on(disk)
    paths = sorted({batch.path for batch in batches})
    path = paths[{"first": 0, "middle": 2, "last sealed": -2, "active": -1}[which]]
    mine = [batch for batch in batches if batch.path == path]
    kept = {"gone": 0, "empty": 0, "half": len(mine) // 2, "cut in a batch": len(mine) // 2}[damage]
    if damage == "gone":
        disk.remove(path)
    else:
        end = 0 if kept == 0 else mine[kept].position + (20 if damage == "cut in a batch" else 0)
        disk.open(path).truncate(end)
    lost = {offset for batch in mine[kept:] for offset in batch.offsets}
    _judge(disk, lost, Truth(batches))

"""One place of a log changes at rest: no wrong offset or value is ever given out, and nothing intact is skipped.

The judge knows every batch as it was appended. It reads the log from its start to its end as consumers do, twice, once
from each offset in turn and once going on from batch to batch; what it gets must be what was there. An offset that it
does not get must be of a batch that was damaged, and be refused with an error that names the file.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.errors import LogDamaged
from martlet.log.file_names import parse_offset_file
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from martlet.log.partition_log import PartitionLog
from martlet.testing.sim_disk import SimDisk
from martlet.wire.batch import iterate_batches
from tests.unit.log.log_builders import NOW_MS, PARTITION, append, batch_of, new_disk

_ROOT = "data/logs"
_LOG = f"{_ROOT}/orders-0"
_OPTIONS = LogOptions(segment_bytes=1500, index_interval_bytes=300, retention_ms=-1)
_BATCHES = 30
_FIELDS = {
    "base_offset": (0, 8),
    "batch_length": (8, 4),
    "partition_leader_epoch": (12, 4),
    "magic": (16, 1),
    "crc": (17, 4),
    "attributes": (21, 2),
    "last_offset_delta": (23, 4),
    "base_timestamp": (27, 8),
    "max_timestamp": (35, 8),
    "producer_id": (43, 8),
    "producer_epoch": (51, 2),
    "base_sequence": (53, 4),
    "record_count": (57, 4),
    "records": (61, 8),
}
_CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "all ones": lambda old: b"\xff" * len(old),
    "zeros": lambda old: bytes(len(old)),
    "one more": lambda old: ((int.from_bytes(old) + 1) % (1 << 8 * len(old))).to_bytes(len(old)),
    "one less": lambda old: ((int.from_bytes(old) - 1) % (1 << 8 * len(old))).to_bytes(len(old)),
    "highest bit": lambda old: bytes([old[0] ^ 0x40]) + old[1:],
    "a million more": lambda old: ((int.from_bytes(old) + 1_000_000) % (1 << 8 * len(old))).to_bytes(len(old)),
}


@dataclass(frozen=True)
class _Batch:
    """A batch as it was stored, and where."""

    path: str
    position: int
    base_offset: int
    next_offset: int
    content: bytes


def _made(disk: SimDisk) -> LogDirectory:
    directory = LogDirectory(disk, _ROOT, _OPTIONS)
    directory.open(NOW_MS)
    log = directory.create(PARTITION, topic_id=b"0" * 16, now_ms=NOW_MS)  # type: ignore[arg-type]
    for number in range(_BATCHES):
        values = [b"%03d" % number * 8] * (1 + number % 3)
        append(log, batch_of(*values, timestamp_ms=NOW_MS + number), leader_epoch=1 + number // 10)
    return directory


def _batches_on(disk: SimDisk) -> list[_Batch]:
    found = []
    for entry in disk.list_directory(_LOG):
        parsed = parse_offset_file(entry.name)
        if parsed is not None and parsed[1] == ".log":
            path = f"{_LOG}/{entry.name}"
            content = disk.read_file(path) or b""
            found += [
                _Batch(path, at, header.base_offset, header.next_offset, content[at : at + header.size])
                for at, header in iterate_batches(content)
            ]
    return found


def _read(log: PartitionLog, offset: int) -> bytes:
    """What a fetch does; after a first failure the log knows which offsets are affected."""
    piece = log.locate(offset, max_bytes=500, end_offset=log.end_offset, at_least_one=True)
    try:
        return piece.read()
    except LogDamaged:
        log.find_damage_at(piece)
        return log.locate(offset, max_bytes=500, end_offset=log.end_offset, at_least_one=True).read()


def _offsets_refused(log: PartitionLog, truth: dict[int, _Batch]) -> set[int]:
    """Read everything; the offsets that were answered with an error. Fails at the first wrong or skipped one."""
    refused = set()
    for start in (*truth, 0):
        offset = start
        while offset < log.end_offset:
            try:
                content = _read(log, offset)
            except LogDamaged:
                refused.add(offset)
                offset += 1
                continue
            assert content, f"offset {offset} leads nowhere"
            for position, header in iterate_batches(content):
                wanted = truth[offset]
                assert header.base_offset == wanted.base_offset, f"offset {offset} was skipped or moved"
                stamped = content[position : position + header.size]
                assert stamped[16:] == wanted.content[16:], f"offset {offset} has another value"
                offset = header.next_offset
            if start:
                break
    return refused


def _restart(disk: SimDisk, directory: LogDirectory, *, is_clean: bool) -> None:
    if is_clean:
        directory.close()
    else:
        for log in directory:
            log.flush()
        directory.checkpoint()
        directory.close(clean=False)


def _judge(disk: SimDisk, damaged: set[int], truth: dict[int, _Batch]) -> None:
    for _ in range(2):  # what the first start finds, the second must not forget
        again = LogDirectory(disk, _ROOT, _OPTIONS)
        again.open(NOW_MS)
        log = again.get(PARTITION)
        if log is None:
            assert max(damaged) == max(truth), "only where the log ends may be in doubt"
            assert _LOG in str(again.failures[PARTITION])
            again.close(clean=False)
            continue
        assert log.end_offset == max(truth) + 1, "no offset is given away again, and none is left out"
        assert _offsets_refused(log, truth) <= damaged, "what is intact can be read"
        again.close(clean=False)


@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_a_changed_field_costs_its_batch_and_no_other(data: st.DataObject) -> None:
    disk = new_disk()
    directory = _made(disk)
    _restart(disk, directory, is_clean=data.draw(st.booleans(), label="clean"))
    batches = _batches_on(disk)
    batch = batches[data.draw(st.integers(0, len(batches) - 1), label="batch")]
    field = data.draw(st.sampled_from(sorted(_FIELDS)), label="field")
    change = data.draw(st.sampled_from(sorted(_CHANGES)), label="change")
    at, size = _FIELDS[field]
    old = batch.content[at : at + size]
    new = _CHANGES[change](old)
    disk.overwrite(batch.path, batch.position + at, new)
    truth = {offset: one for one in batches for offset in range(one.base_offset, one.next_offset)}
    _judge(disk, set(range(batch.base_offset, batch.next_offset)), truth)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("damage", ["gone", "empty", "half", "cut in a batch"])
@pytest.mark.parametrize("which", ["first", "middle", "last sealed"])
def test_a_segment_that_is_not_whole_is_no_silent_gap(which: str, damage: str, is_clean: bool) -> None:
    disk = new_disk()
    directory = _made(disk)
    _restart(disk, directory, is_clean=is_clean)
    batches = _batches_on(disk)
    paths = sorted({batch.path for batch in batches})
    path = paths[{"first": 0, "middle": 2, "last sealed": -2}[which]]
    mine = [batch for batch in batches if batch.path == path]
    kept = {"gone": 0, "empty": 0, "half": len(mine) // 2, "cut in a batch": len(mine) // 2}[damage]
    if damage == "gone":
        disk.remove(path)
    else:
        end = 0 if kept == 0 else mine[kept].position + (20 if damage == "cut in a batch" else 0)
        disk.open(path).truncate(end)
    lost = {offset for batch in mine[kept:] for offset in range(batch.base_offset, batch.next_offset)}
    truth = {offset: one for one in batches for offset in range(one.base_offset, one.next_offset)}
    _judge(disk, lost, truth)

"""Bytes that an earlier process wrote: given out when their checksums hold, and checked no more often than needed."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from martlet.base.errors import LogDamaged
from martlet.log.unchecked_bytes import UncheckedBytes
from martlet.wire.batch import stamp_batch
from tests.unit.log.log_builders import DIRECTORY, append, batch_of, batches_in, checkpointed, fill, new_disk, open_log

_BATCHES = 6


def _batches() -> list[bytes]:
    made = []
    for number in range(_BATCHES):
        batch = batch_of(b"v" * (10 + number))
        stamp_batch(batch, 0, number, 1)
        made.append(bytes(batch))
    return made


CONTENT = b"".join(_batches())
ENDS = [sum(len(batch) for batch in _batches()[:count]) for count in range(_BATCHES + 1)]
_STAMPED = {*range(8), *range(12, 16)}


def test_sound_bytes_are_checked_once() -> None:
    unchecked = UncheckedBytes("a.log", len(CONTENT), 0)
    assert unchecked.covers(0, len(CONTENT))
    unchecked.check(CONTENT, 0)
    assert not unchecked.covers(0, len(CONTENT))
    unchecked.check(b"x" * len(CONTENT), 0)  # not looked at any more


def test_what_follows_the_end_needs_no_check() -> None:
    unchecked = UncheckedBytes("a.log", ENDS[2], 0)
    assert not unchecked.covers(ENDS[2], 100)
    unchecked.check(CONTENT[: ENDS[2]] + b"what this process has written", 0)
    assert not unchecked.covers(0, len(CONTENT))


def test_a_reader_who_goes_on_does_not_check_again() -> None:
    unchecked = UncheckedBytes("a.log", len(CONTENT), 0)
    for start, end in [(ENDS[2], ENDS[3]), (ENDS[3], ENDS[5])]:
        assert unchecked.covers(start, end - start)
        unchecked.check(CONTENT[start:end], start)
    assert not unchecked.covers(ENDS[2], ENDS[5] - ENDS[2])
    assert unchecked.covers(ENDS[1], ENDS[5] - ENDS[1])
    assert unchecked.checked == 0


@given(batch=st.integers(0, _BATCHES - 1), in_batch=st.integers(0, ENDS[1] - 1), bit=st.integers(0, 7))
def test_any_changed_bit_is_found_but_those_that_the_broker_stamps(batch: int, in_batch: int, bit: int) -> None:
    assume(in_batch not in _STAMPED)
    damaged = bytearray(CONTENT)
    damaged[ENDS[batch] + in_batch] ^= 1 << bit
    unchecked = UncheckedBytes("a.log", len(CONTENT), 0)
    if batch:
        assert unchecked.check(bytes(damaged), 0) == unchecked.checked == ENDS[batch]
    with pytest.raises(LogDamaged, match=rf"a\.log: damaged at byte {ENDS[batch]}, near offset {batch}: "):
        unchecked.check(bytes(damaged[ENDS[batch] :]), ENDS[batch])
    assert unchecked.checked == ENDS[batch]


def test_offsets_that_do_not_follow_end_what_can_be_used() -> None:
    batches = [bytearray(batch) for batch in _batches()]
    stamp_batch(batches[3], 0, 1, 1)
    assert UncheckedBytes("a.log", len(CONTENT), 0).check(b"".join(batches), 0) == ENDS[3]


def test_a_log_checks_what_was_flushed_before_it_was_opened_and_nothing_twice() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 40)
    checkpoint = checkpointed(log)
    again = open_log(disk, checkpoint=checkpoint)
    pieces = 0
    while (piece := again.segments.next_unchecked(300)) is not None:
        assert not piece.is_quick()
        piece.read()
        pieces += 1
        assert pieces < 100
    assert pieces > 5
    first = again.locate(0, max_bytes=10_000, end_offset=again.end_offset, at_least_one=True)
    assert first.is_quick()


def test_damage_to_what_was_flushed_is_found_by_its_reader() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 40)
    checkpoint = checkpointed(log)
    whole = batches_in(log)
    path = next(f"{DIRECTORY}/{name}" for name, _, _ in disk.list_directory(DIRECTORY) if name.endswith(".log"))
    file = disk.open(path)
    content = bytearray(file.pread(file.size(), 0))
    content[len(whole[0]) + 70] ^= 1
    file.truncate(0)
    file.append(bytes(content))
    again = open_log(disk, checkpoint=checkpoint)
    one = again.locate(0, max_bytes=10_000, end_offset=again.end_offset, at_least_one=True)
    assert one.read() == whole[0]
    with pytest.raises(LogDamaged, match="the checksum of the batch of offset 2 does not match"):
        again.locate(2, max_bytes=1, end_offset=again.end_offset, at_least_one=True).read()
    append(again, batch_of(b"goes on"))

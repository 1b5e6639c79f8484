"""The two sparse indexes: lookups, Kafka's bytes, and what is left of damaged files."""

from martlet.log.offset_index import OffsetIndex, decode_offset_index
from martlet.log.time_index import TimeIndex, decode_time_index


def offset_index(*entries: tuple[int, int]) -> OffsetIndex:
    index = OffsetIndex()
    for offset, position in entries:
        index.add(offset, position)
    return index


def test_offset_entries_are_kafkas_eight_bytes() -> None:
    index = offset_index((5, 4096), (9, 8200))
    assert index.encode_from(0) == bytes.fromhex("00000005 00001000 00000009 00002008")
    assert index.encode_from(1) == bytes.fromhex("00000009 00002008")
    assert index.encode_from(2) == b""


def test_time_entries_are_kafkas_twelve_bytes() -> None:
    index = TimeIndex()
    index.add(1_700_000_000_000, 7)
    assert index.encode_from(0) == bytes.fromhex("0000018bcfe56800 00000007")


def test_the_entry_before_an_offset_is_the_last_that_ends_before_it() -> None:
    index = offset_index((5, 100), (9, 200))
    assert [index.entry_before(offset) for offset in (0, 5, 6, 9, 10)] == [-1, -1, 0, 0, 1]


def test_the_position_up_to_a_limit_is_a_batch_start() -> None:
    index = offset_index((5, 100), (9, 200))
    assert [index.position_up_to(limit) for limit in (0, 99, 100, 199, 200, 999)] == [0, 0, 100, 100, 200, 200]


def test_an_index_read_back_is_the_one_written() -> None:
    written = offset_index((5, 100), (9, 200), (70, 300))
    index = decode_offset_index(written.encode_from(0), log_bytes=400)
    assert (index.offsets, index.positions) == (written.offsets, written.positions)
    assert (index.persisted, index.has_excess, index.is_proven) == (3, False, False)


def test_of_a_damaged_offset_index_the_sound_beginning_is_kept() -> None:
    content = offset_index((5, 100), (9, 200), (70, 300)).encode_from(0)
    assert len(decode_offset_index(content[:-3], log_bytes=400)) == 2
    assert len(decode_offset_index(content + bytes(64), log_bytes=400)) == 3
    assert len(decode_offset_index(bytes(24), log_bytes=400)) == 1
    assert len(decode_offset_index(content, log_bytes=300)) == 2
    assert len(decode_offset_index(b"\xff" * 24, log_bytes=400)) == 0
    assert decode_offset_index(content[:-3], log_bytes=400).has_excess


def test_of_a_damaged_time_index_the_sound_beginning_is_kept() -> None:
    index = TimeIndex()
    for number in range(3):
        index.add(1000 + number, number)
    content = index.encode_from(0)
    assert len(decode_time_index(content)) == 3
    assert len(decode_time_index(content[:-1])) == 2
    assert len(decode_time_index(content + bytes(24))) == 3
    assert decode_time_index(content + bytes(24)).has_excess


def test_truncating_an_offset_index_remembers_what_the_file_has_too_much() -> None:
    index = decode_offset_index(offset_index((5, 100), (9, 200)).encode_from(0), log_bytes=400)
    index.truncate(200)
    assert (len(index), index.persisted, index.has_excess) == (1, 1, True)
    index.truncate_offsets(6)
    assert len(index) == 1
    index.truncate_offsets(5)
    assert len(index) == 0


def test_time_entries_must_grow_later() -> None:
    index = TimeIndex()
    for timestamp, offset in ((10, 1), (10, 2), (9, 3), (20, 4)):
        index.add(timestamp, offset)
    assert [index.entry(number) for number in range(len(index))] == [(10, 1), (20, 4)]


def test_the_time_entry_before_an_instant_is_strictly_earlier() -> None:
    index = TimeIndex()
    for timestamp, offset in ((10, 1), (20, 4), (30, 9)):
        index.add(timestamp, offset)
    assert index.entry_before(10) is None
    assert index.entry_before(11) == (10, 1)
    assert index.entry_before(30) == (20, 4)
    assert index.entry_before(99) == (30, 9)


def test_truncating_a_time_index_tells_the_last_entry_left() -> None:
    index = TimeIndex()
    for timestamp, offset in ((10, 1), (20, 4), (30, 9)):
        index.add(timestamp, offset)
    assert index.truncate(9) == (20, 4)
    assert index.truncate(0) is None
    assert index.last() is None

"""The index of aborted transactions of one segment: Kafka's bytes, what is believed, and what the file holds when."""

from struct import pack

import pytest
from crc32c import crc32c
from sim.disk import SimDisk

from martlet.base.errors import StorageFailure
from martlet.log.aborted_index import AbortedIndex, AbortedTransaction, decode_aborted, encode_aborted
from martlet.log.aborted_note import encode_note, indexed_since, note_indexed, restore_note
from martlet.log.file_names import ABORTED_NOTE
from tests.unit.log.log_builders import new_disk

PATH = "data/00000000000000000000.txnindex"
FIRST, SECOND, THIRD = (
    AbortedTransaction(5, 0, 10, 11),
    AbortedTransaction(6, 3, 20, 12),
    AbortedTransaction(5, 12, 30, 31),
)


def saved(disk: SimDisk, *entries: AbortedTransaction) -> AbortedIndex:
    index = AbortedIndex(disk, PATH)
    for entry in entries:
        index.add(entry)
    index.save()
    return index


def found(disk: SimDisk) -> AbortedIndex:
    return AbortedIndex(disk, PATH)


def test_the_bytes_are_those_of_kafka_with_a_checksum_behind_them() -> None:
    entry = pack(">hqqqq", 0, 5, 0, 10, 11)
    assert len(entry) == 34
    assert encode_aborted([FIRST]) == entry + pack(">I", crc32c(entry))
    assert len(encode_aborted([])) < 34, "Kafka reads no entry there"


@pytest.mark.parametrize("entries", [[], [FIRST], [FIRST, SECOND, THIRD]])
def test_any_entries_are_read_as_they_were_written(entries: list[AbortedTransaction]) -> None:
    assert decode_aborted(encode_aborted(entries)) == entries


@pytest.mark.parametrize("entries", [[], [FIRST, SECOND]])
def test_no_damaged_byte_is_believed(entries: list[AbortedTransaction]) -> None:
    content = encode_aborted(entries)
    for at in range(len(content)):
        assert decode_aborted(content[:at]) is None
        assert decode_aborted(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]) is None
    assert decode_aborted(content + content) is None


def test_entries_of_a_later_version_are_not_believed() -> None:
    entry = pack(">hqqqq", 1, 5, 0, 10, 11)
    assert decode_aborted(entry + pack(">I", crc32c(entry))) is None


def test_a_segment_without_aborts_has_no_file() -> None:
    disk = new_disk()
    index = saved(disk)
    assert (disk.exists(PATH), index.entries, index.is_damaged, index.files()) == (False, [], False, [])


@pytest.mark.parametrize(("base_offset", "is_missed"), [(5, False), (10, True), (15, True)])
def test_abort_3_a_file_that_is_gone_is_missed_from_the_first_segment_with_aborts_on(
    base_offset: int, is_missed: bool
) -> None:
    disk = new_disk()
    first = AbortedIndex(disk, f"data/{10:020d}.txnindex")
    first.add(THIRD)
    first.save()
    disk.remove(first.path)
    later = AbortedIndex(disk, f"data/{base_offset:020d}.txnindex")
    assert (later.is_damaged, later.entries) == (is_missed, [])


def test_abort_3_a_segment_without_aborts_has_a_file_that_says_so_once_another_has_had_some() -> None:
    disk = new_disk()
    saved(disk, FIRST)
    later = AbortedIndex(disk, f"data/{10:020d}.txnindex")
    later.remove()
    later.save()
    assert [file.path for file in later.files()] == [later.path]
    assert not AbortedIndex(disk, later.path).is_damaged
    disk.remove(later.path)
    assert AbortedIndex(disk, later.path).is_damaged


def test_abort_3_the_note_is_only_ever_lowered() -> None:
    disk = new_disk()
    for base_offset, expected in ((20, 20), (30, 20), (5, 5)):
        note_indexed(disk, "data", base_offset)
        assert indexed_since(disk, "data") == expected


@pytest.mark.parametrize("content", [b"", b"00000000000000000020", encode_note(20).replace(b"2", b"3"), b"\xff" * 40])
def test_abort_3_a_damaged_note_asks_for_every_index_until_it_is_made_again(content: bytes) -> None:
    disk = new_disk()
    disk.open(f"data/{ABORTED_NOTE}", create=True).append(content)
    assert indexed_since(disk, "data") == 0
    restore_note(disk, "data", [40, 20])
    assert indexed_since(disk, "data") == 20


def test_abort_3_a_note_is_made_again_where_there_are_indexes_and_left_alone_where_it_is_sound() -> None:
    disk = new_disk()
    restore_note(disk, "data", [])
    assert indexed_since(disk, "data") is None
    restore_note(disk, "data", [20])
    restore_note(disk, "data", [10])
    assert indexed_since(disk, "data") == 20
    disk.unreadable.add(f"data/{ABORTED_NOTE}")
    assert indexed_since(disk, "data") == 0


def test_saved_entries_are_found_again() -> None:
    disk = new_disk()
    saved(disk, FIRST, SECOND)
    assert found(disk).entries == [FIRST, SECOND]
    assert [file.path for file in found(disk).files()] == [PATH]


def test_an_index_goes_on_with_what_the_file_holds() -> None:
    disk = new_disk()
    saved(disk, FIRST)
    saved(disk, SECOND)
    assert found(disk).entries == [FIRST, SECOND]


def test_markers_from_an_offset_on_are_found() -> None:
    index = saved(new_disk(), FIRST, SECOND, THIRD)
    assert [index.since(offset) for offset in (0, 10, 11, 31)] == [
        [FIRST, SECOND, THIRD],
        [FIRST, SECOND, THIRD],
        [SECOND, THIRD],
        [],
    ]


def test_truncation_takes_the_markers_from_there_on_out_of_the_file_too() -> None:
    disk = new_disk()
    index = saved(disk, FIRST, SECOND, THIRD)
    index.truncate(20)
    index.save()
    assert found(disk).entries == [FIRST]
    index.truncate(0)
    index.save()
    assert (found(disk).entries, found(disk).is_damaged) == ([], False)


def test_a_file_is_written_only_when_something_has_changed() -> None:
    disk = new_disk()
    index = saved(disk, FIRST)
    disk.remove(PATH)
    index.save()
    index.truncate(11)
    index.save()
    assert not disk.exists(PATH)


def test_released_entries_are_read_again_and_unsaved_ones_stay() -> None:
    disk = new_disk()
    index = saved(disk, FIRST)
    index.release()
    assert index.entries == [FIRST]
    index.add(SECOND)
    index.release()
    assert index.entries == [FIRST, SECOND]


@pytest.mark.parametrize("content", [b"", b"\0" * 34, encode_aborted([FIRST])[:-1]])
def test_a_damaged_file_says_so_until_its_entries_are_made_again(content: bytes) -> None:
    disk = new_disk()
    disk.open(PATH, create=True).append(content)
    index = found(disk)
    assert (index.is_damaged, index.entries) == (True, [])
    index.save()
    assert disk.read_file(PATH) == content, "what is not known is not written over"
    index.clear()
    index.add(FIRST)
    index.save()
    assert (index.is_damaged, found(disk).entries) == (False, [FIRST])


def test_a_file_that_cannot_be_read_is_damaged_and_not_missing() -> None:
    disk = new_disk()
    saved(disk, FIRST)
    disk.unreadable.add(PATH)
    assert found(disk).is_damaged


def test_a_write_that_fails_is_done_again() -> None:
    disk = new_disk()
    index = saved(disk, FIRST)
    index.add(SECOND)
    disk.fail_next_write()
    with pytest.raises(StorageFailure):
        index.save()
    index.save()
    assert found(disk).entries == [FIRST, SECOND]

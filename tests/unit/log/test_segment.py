"""One segment: finding batches with sound, stale, damaged and missing indexes."""

import pytest
from sim.disk import SimDisk

from martlet.base.errors import DiskFull, LogDamaged, StorageFailure
from martlet.log.batch_order import BatchOrder
from martlet.log.batch_scan import BatchScan
from martlet.log.segment import Segment
from martlet.log.segment_opening import reopen, start_recovery, truncate
from martlet.log.segment_walks import end_before
from martlet.wire.batch import read_batch_header, stamp_batch
from tests.unit.log.log_builders import batch_of, new_disk

DIRECTORY = "data/p-0"
PREFIX = f"{DIRECTORY}/00000000000000000100"


def new_segment(disk: SimDisk, *, interval: int = 300) -> Segment:
    disk.make_directory(DIRECTORY)
    return Segment.create(disk, DIRECTORY, 100, index_interval_bytes=interval)


def write(segment: Segment, batches: int, *, first_ms: int = 1000) -> list[tuple[int, int]]:
    """Append batches of two records; returns position and base offset of each."""
    places = []
    for number in range(batches):
        batch = batch_of(b"v" * 20, b"w" * 20, timestamp_ms=first_ms + 10 * number)
        base_offset = segment.next_offset
        stamp_batch(batch, 0, base_offset, 3)
        position = segment.write(memoryview(batch))
        segment.note_batch(position, base_offset + 1, read_batch_header(batch))
        places.append((position, base_offset))
    return places


def found_again(disk: SimDisk, *, next_offset: int, interval: int = 300) -> Segment:
    """The same segment as a later process finds it, sealed."""
    size = next(entry.size for entry in disk.list_directory(DIRECTORY) if entry.name.endswith(".log"))
    segment = Segment(disk, DIRECTORY, 100, size=size, index_interval_bytes=interval)
    segment.next_offset, segment.is_sealed = next_offset, True
    return segment


def sealed(disk: SimDisk, batches: int = 40) -> list[tuple[int, int]]:
    segment = new_segment(disk)
    places = write(segment, batches)
    segment.seal(segment.next_offset)
    assert segment.files.save_indexes()
    return places


def check_places(segment: Segment, places: list[tuple[int, int]]) -> None:
    for position, base_offset in places:
        assert segment.position_of(base_offset) == position
        assert segment.position_of(base_offset + 1) == position


def test_every_offset_leads_to_its_batch_while_appending() -> None:
    segment = new_segment(new_disk())
    places = write(segment, 100)
    check_places(segment, places)
    assert segment.position_of(segment.next_offset) == segment.size
    assert len(segment.index) > 10


def test_every_offset_leads_to_its_batch_in_a_later_process() -> None:
    disk = new_disk()
    places = sealed(disk)
    segment = found_again(disk, next_offset=180)
    before = disk.reads
    check_places(segment, places[-1:])
    assert disk.reads - before <= 8
    check_places(segment, places)


def test_nothing_is_read_before_it_is_asked_for() -> None:
    disk = new_disk()
    sealed(disk)
    before = disk.reads
    found_again(disk, next_offset=180)
    assert disk.reads == before


@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_missing_indexes_are_rebuilt(kind: str) -> None:
    disk = new_disk()
    places = sealed(disk)
    content = {name: disk.read_file(f"{PREFIX}.{name}") for name in ("index", "timeindex")}
    disk.remove(f"{PREFIX}.{kind}")
    segment = found_again(disk, next_offset=180)
    check_places(segment, places)
    assert segment.max_timestamp() == (1391, 179)
    assert {name: disk.read_file(f"{PREFIX}.{name}") for name in content} == content


def test_a_cut_offset_index_is_noticed_and_rebuilt() -> None:
    disk = new_disk()
    places = sealed(disk)
    disk.cut(f"{PREFIX}.index", 20)
    segment = found_again(disk, next_offset=180)
    check_places(segment, places)
    assert segment.index.is_proven


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_a_cut_time_index_is_noticed_and_rebuilt(entries: int) -> None:
    disk = new_disk()
    sealed(disk)
    disk.cut(f"{PREFIX}.timeindex", 12 * entries)
    assert found_again(disk, next_offset=180).max_timestamp() == (1391, 179)


def test_no_bit_flip_in_the_offset_index_leads_astray() -> None:
    disk = new_disk()
    places = sealed(disk, 20)
    content = disk.read_file(f"{PREFIX}.index")
    assert content
    for bit in range(len(content) * 8):
        disk.overwrite(f"{PREFIX}.index", 0, content)
        disk.flip_bit(f"{PREFIX}.index", bit)
        check_places(found_again(disk, next_offset=140), places)


def test_no_bit_flip_in_the_time_index_changes_the_greatest_timestamp() -> None:
    disk = new_disk()
    sealed(disk, 20)
    content = disk.read_file(f"{PREFIX}.timeindex")
    assert content
    for bit in range(len(content) * 8):
        disk.overwrite(f"{PREFIX}.timeindex", 0, content)
        disk.flip_bit(f"{PREFIX}.timeindex", bit)
        assert found_again(disk, next_offset=140).max_timestamp() == (1191, 139)


def test_a_slice_is_cut_at_the_end_of_a_batch() -> None:
    disk = new_disk()
    places = sealed(disk)
    starts = [position for position, _ in places]
    for segment in (found_again(disk, next_offset=180), new_segment(new_disk())):
        if segment.size == 0:
            write(segment, 40)
        end = [*starts, segment.size]
        for limit in (starts[3] + 400, starts[5] + 113, segment.size - 1):
            cut = segment.cut_before(limit, start=starts[3], at_least_one=False)
            assert cut in end
            assert starts[3] <= cut <= limit


def test_the_first_batch_is_given_whole_when_asked_so() -> None:
    segment = new_segment(new_disk())
    starts = [position for position, _ in write(segment, 5)]
    assert segment.cut_before(starts[1] + 10, start=starts[1], at_least_one=True) == starts[2]
    assert segment.cut_before(starts[1] + 10, start=starts[1], at_least_one=False) == starts[1]


def test_damage_in_a_sealed_segment_is_reported_with_its_place() -> None:
    disk = new_disk()
    places = sealed(disk)
    position = places[20][0]
    disk.overwrite(f"{PREFIX}.log", position, bytes(61))
    disk.remove(f"{PREFIX}.index")
    again = found_again(disk, next_offset=180)
    for _ in range(2):
        assert again.position_of(170) == places[35][0]
        with pytest.raises(LogDamaged, match=rf"100.log: damaged at byte {position}, offsets 140 to 141 cannot be"):
            again.position_of(141)


def test_a_shortened_log_file_is_reported_and_not_read_past() -> None:
    disk = new_disk()
    sealed(disk)
    size = len(disk.read_file(f"{PREFIX}.log") or b"")
    disk.cut(f"{PREFIX}.log", size - 30)
    with pytest.raises(StorageFailure, match="cut off"):
        found_again(disk, next_offset=180).position_of(179)


def test_a_failed_write_leaves_the_file_as_it_was() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    places = write(segment, 3)
    size = segment.size
    disk.capacity_bytes = disk.used_bytes() + 50
    with pytest.raises(DiskFull):
        write(segment, 1)
    assert segment.size == size == segment.file.size()
    disk.capacity_bytes = None
    check_places(segment, places + write(segment, 3))


def test_a_full_disk_keeps_indexes_in_memory_until_there_is_room() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    places = write(segment, 40)
    disk.capacity_bytes = disk.used_bytes()
    assert not segment.files.save_indexes()
    segment.seal(segment.next_offset)
    segment.release()
    check_places(segment, places)
    disk.capacity_bytes = None
    assert segment.files.save_indexes()
    check_places(found_again(disk, next_offset=180), places)


def test_reopening_continues_the_index_as_if_never_closed() -> None:
    disk = new_disk()
    whole = new_segment(disk)
    write(whole, 60)
    expected = (list(whole.index.offsets), bytes(whole.times.content))
    other = new_disk()
    segment = new_segment(other)
    write(segment, 33)
    segment.files.save_indexes()
    again = Segment(other, DIRECTORY, 100, size=segment.size, index_interval_bytes=300)
    reopen(again, segment.size)
    assert again.next_offset == 166
    write(again, 27, first_ms=1330)
    assert (list(again.index.offsets), bytes(again.times.content)) == expected


def test_truncating_forgets_batches_and_index_entries() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    places = write(segment, 40)
    segment.files.save_indexes()
    truncate(segment, places[10][0])
    assert (segment.size, segment.next_offset) == places[10]
    check_places(segment, places[:10])
    assert segment.max_timestamp() == (1091, 119)
    assert end_before(segment, places[10][0]) == 120
    truncate(segment, 0)
    assert (segment.size, segment.next_offset, segment.max_timestamp()[0]) == (0, 100, -1)
    assert disk.read_file(f"{PREFIX}.index") == b""


def test_a_lost_end_of_the_time_index_is_made_up_for_when_not_trusted() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    write(segment, 40)
    segment.files.save_indexes()
    expected = bytes(segment.times.content)
    disk.cut(f"{PREFIX}.timeindex", 12)
    again = Segment(disk, DIRECTORY, 100, size=segment.size, index_interval_bytes=300)
    position, first_offset = start_recovery(again, 180)
    assert position < 300 * 3
    for at, header in again.survey(position, next_offset=first_offset):
        again.note_batch(at, header.last_offset, header)
    assert again.max_timestamp() == (1391, 179)
    assert bytes(again.times.content) == expected


def test_records_without_timestamps_are_indexed_like_others() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    for _ in range(20):
        batch = batch_of(b"v" * 40, timestamp_ms=-1)
        stamp_batch(batch, 0, segment.next_offset, 0)
        segment.note_batch(segment.write(memoryview(batch)), segment.next_offset, read_batch_header(batch))
    segment.seal(120)
    segment.files.save_indexes()
    before = disk.writes
    assert found_again(disk, next_offset=120).max_timestamp() == (-1, 100)
    assert disk.writes == before, "nothing was rebuilt"


def test_a_scan_stops_at_the_first_bytes_that_are_no_batch() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    places = write(segment, 3)
    file = segment.file
    size = segment.size
    for tail, fault in (
        (bytes(200), "there is no batch"),
        (b"x" * 30, "too few"),
        (bytes(file.pread(60, 0)), "too few"),
        (bytes(file.pread(80, 0)), "cut off"),
        (bytes(file.pread(places[1][0], 0)), "comes where 106 was due"),
    ):
        file.truncate(size)
        file.append(tail)
        scan = BatchScan(file, 0, file.size(), BatchOrder(100), check_crc=True)
        assert [header.base_offset for _, header in scan] == [100, 102, 104]
        assert (scan.position, scan.next_offset) == (size, 106)
        assert scan.fault is not None
        assert fault in scan.fault


def test_a_scan_with_checksums_notices_every_flipped_bit_that_counts() -> None:
    disk = new_disk()
    segment = new_segment(disk)
    write(segment, 1)
    size = segment.size
    harmless = set(range(12 * 8, 16 * 8))  # the leader epoch, outside the checksum and any number is one
    for bit in range(8, size * 8):
        disk.flip_bit(segment.path, bit)
        scan = BatchScan(segment.file, 0, size, BatchOrder(100), check_crc=True)
        seen = [header for _, header in scan]
        assert not seen or bit in harmless or seen[0].base_offset != 100
        disk.flip_bit(segment.path, bit)

"""Producer snapshots: Kafka's bytes, the whole window, and no damage that is believed."""

from struct import pack

from crc32c import crc32c
from sim.disk import SimDisk

from martlet.log.producer_snapshot import ProducerSnapshots, decode_producers, encode_producers
from martlet.log.producer_state import ProducerStates
from tests.unit.log.log_builders import new_disk
from tests.unit.log.test_producer_state import header_of


def some_producers() -> ProducerStates:
    producers = ProducerStates()
    for sequence in range(7):
        producers.record(header_of(sequence * 2, 2), 101 + 2 * sequence, 5000 + sequence)
    producers.record(header_of(0, producer_id=4, epoch=2), 300, 6000)
    return producers


def windows(producers: ProducerStates) -> dict[int, tuple[int, int, list[object]]]:
    return {id_: (entry.epoch, entry.next_sequence, list(entry.batches)) for id_, entry in producers.items()}


def test_the_whole_window_comes_back() -> None:
    producers = some_producers()
    again = decode_producers(encode_producers(producers))
    assert again is not None
    assert windows(again) == windows(producers)


def test_an_empty_state_comes_back_empty() -> None:
    again = decode_producers(encode_producers(ProducerStates()))
    assert again is not None
    assert len(again) == 0


def test_the_bytes_are_those_kafka_reads() -> None:
    producers = ProducerStates()
    producers.record(header_of(3, 2), 41, 1234)
    entry = pack(">qhiqiqiq", 9, 0, 4, 41, 1, 1234, -1, -1)
    body = pack(">i", 1) + entry
    assert encode_producers(producers) == pack(">hI", 1, crc32c(body)) + body


def test_a_reader_that_lets_the_last_entry_win_sees_the_newest_batch() -> None:
    content = encode_producers(some_producers())
    last_of: dict[int, int] = {}
    for position in range(10, len(content), 46):
        last_of[int.from_bytes(content[position : position + 8], "big")] = position
    assert int.from_bytes(content[last_of[9] + 14 : last_of[9] + 22], "big") == 113


def test_a_producer_without_batches_keeps_its_epoch() -> None:
    producers = some_producers()
    entry = producers.get(4)
    assert entry is not None
    entry.batches.clear()
    entry.next_sequence = 0
    again = decode_producers(encode_producers(producers))
    assert again is not None
    restored = again.get(4)
    assert restored is not None
    assert (restored.epoch, restored.batches, restored.last_timestamp_ms) == (2, [], 6000)


def test_no_damaged_snapshot_is_believed() -> None:
    content = encode_producers(some_producers())
    for bit in range(len(content) * 8):
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        assert decode_producers(bytes(flipped)) is None
    for size in range(len(content)):
        assert decode_producers(content[:size]) is None
    assert decode_producers(bytes(400)) is None
    assert decode_producers(content + b"\0") is None


def snapshots_on(disk: SimDisk, *offsets: int) -> ProducerSnapshots:
    disk.make_directory("data/p-0")
    snapshots = ProducerSnapshots(disk, "data/p-0", [])
    for offset in offsets:
        snapshots.write(offset, some_producers())
    return snapshots


def test_the_newest_snapshot_not_beyond_an_offset_is_loaded() -> None:
    snapshots = snapshots_on(new_disk(), 10, 30, 20)
    for asked, expected in ((9, None), (10, 10), (29, 20), (99, 30)):
        found = snapshots.load_latest(up_to_offset=asked)
        assert (found and found[0]) == expected


def test_an_unreadable_snapshot_is_removed_and_the_one_before_used() -> None:
    disk = new_disk()
    snapshots = snapshots_on(disk, 10, 20)
    disk.flip_bit("data/p-0/00000000000000000020.snapshot", 100)
    found = snapshots.load_latest(up_to_offset=99)
    assert found is not None
    assert found[0] == 10
    assert list(snapshots) == [10]
    assert not disk.exists("data/p-0/00000000000000000020.snapshot")


def test_snapshots_go_with_what_they_describe() -> None:
    disk = new_disk()
    snapshots = snapshots_on(disk, 10, 20, 30, 40)
    assert snapshots.remove_beyond(30)
    assert not snapshots.remove_beyond(30)
    snapshots.remove_before(20)
    assert list(snapshots) == [20, 30]
    snapshots.keep_only({20})
    assert list(snapshots) == [20, 30], "the newest stays"
    snapshots.write(50, some_producers())
    snapshots.keep_only({20})
    assert list(snapshots) == [20, 50]
    snapshots.remove_all()
    assert [entry.name for entry in disk.list_directory("data/p-0")] == []


def test_a_full_disk_costs_a_snapshot_and_nothing_else() -> None:
    disk = new_disk()
    snapshots = snapshots_on(disk, 10)
    disk.capacity_bytes = disk.used_bytes() + 5
    snapshots.write(20, some_producers())
    assert list(snapshots) == [10]
    assert not disk.exists("data/p-0/00000000000000000020.snapshot")

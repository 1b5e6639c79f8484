"""The simulated disk: what survives which crash, and faults on demand."""

from collections.abc import Callable

import pytest
from sim.clock import SimClock
from sim.disk import SimDisk
from sim.failing_device import SimCrash
from sim.randomness import SimRandomness

from martlet.base.errors import DiskFull, StorageFailure

SEEDS = range(40)


def disk_with_directory(seed: int = 0, **settings: int) -> SimDisk:
    disk = SimDisk(SimRandomness(seed), **settings)
    disk.make_directory("d")
    disk.sync_directory("")
    return disk


def outcomes(prepare: Callable[[SimDisk], None], look: Callable[[SimDisk], object]) -> set[object]:
    """What `look` finds after a power cut, over many seeds."""
    seen = set()
    for seed in SEEDS:
        disk = disk_with_directory(seed)
        prepare(disk)
        disk.crash("power")
        seen.add(look(disk))
    return seen


def synced_file(disk: SimDisk, content: bytes, path: str = "d/f") -> None:
    file = disk.open(path, create=True)
    file.append(content)
    file.sync()
    disk.sync_directory("d")


def test_files_read_back_what_was_written() -> None:
    disk = disk_with_directory()
    file = disk.open("d/f", create=True)
    file.append(b"hello ")
    file.append(memoryview(b"world"))
    file.pwrite(b"J", 0)
    assert file.pread(5, 0) == b"Jello"
    assert file.pread(99, 6) == b"world"
    assert (file.size(), disk.read_file("d/f")) == (11, b"Jello world")
    file.truncate(3)
    assert disk.read_file("d/f") == b"Jel"
    file.truncate(5)
    assert disk.read_file("d/f") == b"Jel\0\0"
    file.close()


def test_directories_list_their_names_sorted() -> None:
    disk = disk_with_directory()
    disk.make_directory("d/sub/deep")
    disk.open("d/b", create=True).append(b"12")
    disk.open("d/a", create=True)
    assert disk.list_directory("d") == [("a", False, 0), ("b", False, 2), ("sub", True, 0)]
    assert disk.list_directory("nowhere") == []
    assert disk.exists("d/sub/deep")
    assert not disk.exists("d/c")


def test_missing_files_are_errors_or_none() -> None:
    disk = disk_with_directory()
    for attempt in (
        lambda: disk.open("d/x"),
        lambda: disk.open("no/x", create=True),
        lambda: disk.rename("d/x", "d/y"),
    ):
        with pytest.raises(StorageFailure):
            attempt()
    assert disk.read_file("d/x") is None
    disk.remove("d/x")
    disk.remove_tree("nowhere")


def test_a_process_crash_loses_nothing_but_handles() -> None:
    disk = disk_with_directory()
    file = disk.open("d/f", create=True)
    file.append(b"unsynced")
    disk.crash("process")
    assert disk.read_file("d/f") == b"unsynced"
    for attempt in (file.size, file.sync, lambda: file.append(b"x"), lambda: file.pread(1, 0)):
        with pytest.raises(SimCrash):
            attempt()


def test_what_was_synced_survives_every_power_cut() -> None:
    def prepare(disk: SimDisk) -> None:
        synced_file(disk, b"a" * 5000)

    assert outcomes(prepare, lambda disk: disk.read_file("d/f")) == {b"a" * 5000}


def test_an_unsynced_name_may_be_lost_although_its_data_was_synced() -> None:
    def prepare(disk: SimDisk) -> None:
        file = disk.open("d/f", create=True)
        file.append(b"data")
        file.sync()

    assert outcomes(prepare, lambda disk: disk.read_file("d/f")) == {None, b"data"}


def test_an_unsynced_directory_may_be_lost_with_all_in_it() -> None:
    def prepare(disk: SimDisk) -> None:
        disk.make_directory("d/new")
        synced_file(disk, b"x", "d/new/f")
        disk.sync_directory("d/new")

    assert outcomes(prepare, lambda disk: disk.read_file("d/new/f")) == {b"x"}

    def prepare_unsynced(disk: SimDisk) -> None:
        disk.make_directory("d/new")
        disk.open("d/new/f", create=True).sync()
        disk.sync_directory("d/new")

    assert outcomes(prepare_unsynced, lambda disk: disk.exists("d/new")) == {True, False}


def test_unsynced_pages_are_kept_lost_or_torn_one_by_one() -> None:
    def prepare(disk: SimDisk) -> None:
        synced_file(disk, b"o" * 12288)
        disk.open("d/f").pwrite(b"n" * 12288, 0)

    def look(disk: SimDisk) -> object:
        content = disk.read_file("d/f") or b""
        assert len(content) == 12288
        kinds = []
        for start in range(0, 12288, 4096):
            page = content[start : start + 4096]
            new = page.rstrip(b"o")
            assert not new.strip(b"n")
            assert len(new) % 512 == 0
            kinds.append("kept" if len(new) == 4096 else "torn" if new else "lost")
        return tuple(kinds)

    seen = outcomes(prepare, look)
    assert len(seen) > 8
    assert {kind for kinds in seen for kind in kinds} == {"kept", "torn", "lost"}  # type: ignore[attr-defined]


def test_the_size_may_grow_before_the_data_and_then_reads_as_zeros() -> None:
    def prepare(disk: SimDisk) -> None:
        synced_file(disk, b"o" * 100)
        disk.open("d/f").append(b"n" * 20000)

    contents = outcomes(prepare, lambda disk: disk.read_file("d/f"))
    assert all(isinstance(content, bytes) and content.startswith(b"o" * 100) for content in contents)
    sizes = {len(content) for content in contents if isinstance(content, bytes)}
    assert {100, 20100} < sizes
    assert any(b"\0" in content for content in contents if isinstance(content, bytes))


def test_an_unsynced_truncation_may_be_undone() -> None:
    def prepare(disk: SimDisk) -> None:
        synced_file(disk, b"o" * 100)
        disk.open("d/f").truncate(10)

    assert {b"o" * 100, b"o" * 10} < outcomes(prepare, lambda disk: disk.read_file("d/f"))


def test_names_changed_since_the_last_sync_are_kept_or_lost_each_on_its_own() -> None:
    def prepare(disk: SimDisk) -> None:
        for name in ("a", "b", "c"):
            synced_file(disk, name.encode(), f"d/{name}")
        disk.remove("d/a")
        disk.rename("d/b", "d/moved")
        disk.open("d/new", create=True)

    seen = outcomes(prepare, lambda disk: tuple(entry.name for entry in disk.list_directory("d")))
    assert ("a", "b", "c") in seen
    assert ("c", "moved", "new") in seen
    assert len(seen) == 8
    assert all(("b" in names) != ("moved" in names) for names in seen)  # type: ignore[operator]


def test_a_replaced_file_is_the_old_or_the_new_at_every_step() -> None:
    for changes in range(6):
        disk = disk_with_directory(changes)
        disk.replace_file("d/f", b"old")
        disk.stop_after(changes)
        try:
            disk.replace_file("d/f", b"new")
            finished = True
        except SimCrash:
            finished = False
        disk.crash("power")
        assert disk.read_file("d/f") in ({b"new"} if finished else {b"old"})


def test_a_full_disk_stops_a_write_half_way() -> None:
    disk = disk_with_directory(capacity_bytes=10)
    file = disk.open("d/f", create=True)
    file.append(b"123456")
    assert disk.free_bytes("d") == 4
    with pytest.raises(DiskFull):
        file.append(b"abcdefgh")
    assert disk.read_file("d/f") == b"123456abcd"
    file.truncate(6)
    disk.capacity_bytes = None
    file.append(b"abcdefgh")
    assert disk.free_bytes("d") > 1 << 30


def test_writes_and_syncs_fail_when_told_to() -> None:
    disk = disk_with_directory()
    file = disk.open("d/f", create=True)
    disk.fail_next_write()
    with pytest.raises(StorageFailure):
        file.append(b"12345678")
    assert file.size() == 4
    disk.fail_next_sync()
    with pytest.raises(StorageFailure):
        file.sync()
    file.sync()
    disk.fail_next_sync()
    with pytest.raises(StorageFailure):
        disk.sync_directory("d")


def test_a_stopped_machine_does_nothing_more() -> None:
    disk = disk_with_directory()
    file = disk.open("d/f", create=True)
    disk.stop_after(1)
    file.append(b"1")
    for attempt in (lambda: file.append(b"2"), lambda: disk.read_file("d/f"), lambda: disk.exists("d")):
        with pytest.raises(SimCrash):
            attempt()
    disk.crash("process")
    assert disk.read_file("d/f") == b"1"


def test_damage_at_rest_is_there_after_a_crash_too() -> None:
    disk = disk_with_directory()
    synced_file(disk, bytes(8))
    disk.flip_bit("d/f", 9)
    disk.overwrite("d/f", 3, b"xy")
    disk.cut("d/f", 6)
    disk.crash("power")
    assert disk.read_file("d/f") == b"\0\x02\0xy\0"
    with pytest.raises(StorageFailure):
        disk.flip_bit("d/none", 0)


def test_what_has_rotted_is_remembered_as_it_was_written() -> None:
    disk = disk_with_directory()
    synced_file(disk, b"abcd")
    node = disk.content("d/f")
    node.rot(8 * 2)
    disk.open("d/f").append(b"ef")
    assert disk.read_file("d/f") == b"abbdef"
    assert (bytes(node.as_written()), bytes(node.as_written(durable=True))) == (b"abcdef", b"abcd")
    disk.open("d/f").truncate(2)
    disk.open("d/f").append(b"c")
    assert bytes(node.as_written()) == b"abc"
    assert not node.rotten


def test_an_unreadable_file_gives_nothing_back() -> None:
    disk = disk_with_directory()
    synced_file(disk, b"abcd")
    file = disk.open("d/f")
    disk.unreadable.add("d/f")
    reads: list[Callable[[], object]] = [
        lambda: file.pread(1, 0),
        lambda: file.pread_now(1, 0),
        lambda: disk.read_file("d/f"),
    ]
    for read in reads:
        with pytest.raises(StorageFailure, match="Input/output error"):
            read()
    disk.unreadable.clear()
    assert file.pread(1, 0) == b"a"


def test_cold_data_is_said_to_be_so() -> None:
    disk = disk_with_directory()
    file = disk.open("d/f", create=True)
    assert file.is_cached(0, 1)
    disk.cold = True
    assert not file.is_cached(0, 1)
    assert file.pread_now(1, 0) is None


def test_directories_are_renamed_and_removed_with_their_content() -> None:
    disk = disk_with_directory()
    disk.make_directory("d/one")
    synced_file(disk, b"x", "d/one/f")
    disk.rename("d/one", "d/two")
    assert disk.read_file("d/two/f") == b"x"
    assert not disk.exists("d/one")
    disk.remove_tree("d/two")
    assert disk.list_directory("d") == []


def test_the_same_seed_gives_the_same_disk() -> None:
    contents = []
    for _ in range(2):
        disk = disk_with_directory(7)
        disk.open("d/f", create=True).append(b"n" * 30000)
        disk.crash("power")
        contents.append(disk.read_file("d/f"))
    assert contents[0] == contents[1]


def test_the_simulated_clock_moves_only_when_told() -> None:
    clock = SimClock(1000)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1000, 0)
    clock.advance(5)
    clock.set_wall_clock(10)
    assert (clock.now_ms(), clock.monotonic_ms()) == (10, 5)
    with pytest.raises(ValueError, match="backwards"):
        clock.advance(-1)


def test_streams_of_one_seed_are_repeatable_and_independent() -> None:
    first, second = SimRandomness(3), SimRandomness(3)
    assert [first.below(100) for _ in range(5)] == [second.below(100) for _ in range(5)]
    assert first.token(4) == second.token(4)
    assert 0 <= first.fraction() < 1
    assert first.stream("disk").token(8) == second.stream("disk").token(8)
    assert first.stream("disk").token(8) != first.stream("net").token(8)


def test_a_wiped_disk_is_empty_and_knows_no_old_handle() -> None:
    disk = SimDisk(SimRandomness())
    disk.make_directory("d")
    file = disk.open("d/f", create=True)
    file.append(b"data")
    disk.wipe()
    assert disk.list_directory("") == []
    with pytest.raises(SimCrash):
        file.size()


def test_judges_see_files_and_what_of_them_is_durable_and_when_something_went_away() -> None:
    disk = SimDisk(SimRandomness())
    disk.make_directory("d")
    file = disk.open("d/f", create=True)
    file.append(b"data")
    assert disk.files("d")["f"].content == b"data"
    assert disk.durable_files("d") == {}
    file.sync()
    disk.sync_directory("d")
    disk.sync_directory("")
    assert disk.durable_files("d")["f"].durable == b"data"
    assert disk.files("d")["f"].cuts == 0
    file.truncate(2)
    assert disk.files("d")["f"].cuts == 1
    assert disk.files("nowhere") == {}


def test_faults_that_were_armed_can_be_called_off() -> None:
    disk = SimDisk(SimRandomness())
    file = disk.open("f", create=True)
    disk.fail_next_write()
    disk.stop_after(0)
    disk.stop_no_more()
    file.append(b"data")
    file.sync()

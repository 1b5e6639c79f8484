"""The machine's disk keeps the promises of the disk port (BASE-1 to BASE-3) and its errors arrive as ours."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from martlet.base.disk import DirectoryEntry, Disk, SystemDisk, storage_failure
from martlet.base.errors import DiskFull, StorageFailure


@pytest.fixture
def disk() -> Disk:
    return SystemDisk()


def test_appends_are_in_the_file_when_they_return(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a.log")
    file = disk.open(path, create=True)
    file.append(b"one")
    file.append(memoryview(bytearray(b"two")))
    assert file.size() == 6
    assert Path(path).read_bytes() == b"onetwo"
    file.close()


def test_reads_stop_at_the_end_of_the_file(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.append(b"0123456789")
    assert file.pread(4, 3) == b"3456"
    assert file.pread(100, 8) == b"89"
    assert file.pread(5, 10) == b""
    file.close()


def test_writing_in_place_grows_the_file_only_past_its_end(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.append(b"0123456789")
    file.pwrite(b"ab", 2)
    assert file.size() == 10
    file.pwrite(b"xyz", 9)
    assert file.size() == 12
    assert file.pread(12, 0) == b"01ab45678xyz"
    file.close()


def test_a_truncated_file_takes_appends_at_its_new_end(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.append(b"0123456789")
    file.truncate(4)
    file.append(b"x")
    file.sync()
    assert file.pread(10, 0) == b"0123x"
    file.close()


def test_a_reopened_file_knows_its_size(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a.log")
    file = disk.open(path, create=True)
    file.append(b"0123")
    file.close()
    file.close()
    again = disk.open(path)
    again.append(b"4")
    assert again.pread(10, 0) == b"01234"
    again.close()


def test_what_was_just_written_is_cached(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.append(bytes(100_000))
    assert file.is_cached(0, 100_000)
    assert file.is_cached(100_000, 0)
    file.close()


@pytest.mark.parametrize("size", [1, 5_000, 100_000])
def test_what_is_cached_can_be_read_at_once(disk: Disk, tmp_path: Path, size: int) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    content = bytes(range(250)) * 400
    file.append(content)
    assert file.pread_now(size, 0) == content[:size]
    assert file.pread_now(size, 100_000 - size) == content[-size:]
    assert file.pread_now(0, 100_000) == b""
    file.close()


def test_a_missing_file_is_a_storage_failure_that_names_it(disk: Disk, tmp_path: Path) -> None:
    with pytest.raises(StorageFailure, match=r"absent\.log: No such file") as caught:
        disk.open(str(tmp_path / "absent.log"))
    assert not isinstance(caught.value, DiskFull)


def test_a_full_device_is_told_apart_from_a_broken_one(disk: Disk) -> None:
    file = disk.open("/dev/full")
    with pytest.raises(DiskFull, match="No space left"):
        file.append(b"x")
    assert file.size() == 0
    file.close()


@pytest.mark.parametrize(
    ("number", "kind"),
    [(errno.ENOSPC, DiskFull), (errno.EDQUOT, DiskFull), (errno.EIO, StorageFailure), (errno.EROFS, StorageFailure)],
)
def test_errors_of_the_system_become_ours(number: int, kind: type[StorageFailure]) -> None:
    made = storage_failure(OSError(number, os.strerror(number)), "some/file")
    assert type(made) is kind
    assert str(made) == f"some/file: {os.strerror(number)}"


def test_using_a_closed_file_is_a_storage_failure(disk: Disk, tmp_path: Path) -> None:
    file = disk.open(str(tmp_path / "a.log"), create=True)
    file.close()
    for use in (
        lambda: file.append(b"x"),
        lambda: file.pread(1, 0),
        lambda: file.truncate(0),
        lambda: file.is_cached(0, 1),
        lambda: file.pread_now(1, 0),
    ):
        with pytest.raises(StorageFailure):
            use()


def test_a_file_without_holder_is_closed(disk: Disk, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for number in range(20):
        disk.open(str(tmp_path / f"{number}.log"), create=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_replacing_a_file_leaves_only_the_new_content(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    Path(f"{path}.tmp").write_bytes(b"left over from a crash, and longer than what follows")
    disk.replace_file(path, b"first")
    disk.replace_file(path, b"second")
    assert disk.read_file(path) == b"second"
    assert os.listdir(tmp_path) == ["checkpoint"]


def test_a_file_that_cannot_be_replaced_keeps_its_content(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "checkpoint")
    disk.replace_file(path, b"first")
    os.symlink("/dev/full", f"{path}.tmp")
    with pytest.raises(StorageFailure):
        disk.replace_file(path, b"second")
    assert disk.read_file(path) == b"first"


def test_directories_are_listed_by_name_with_sizes(disk: Disk, tmp_path: Path) -> None:
    disk.make_directory(str(tmp_path / "b" / "c"))
    disk.make_directory(str(tmp_path / "b" / "c"))
    (tmp_path / "a").write_bytes(b"123")
    assert disk.list_directory(str(tmp_path)) == [DirectoryEntry("a", False, 3), DirectoryEntry("b", True, 0)]
    assert disk.list_directory(str(tmp_path / "absent")) == []
    with pytest.raises(StorageFailure):
        disk.list_directory(str(tmp_path / "a"))


def test_a_file_that_vanishes_while_its_directory_is_listed_takes_no_other_from_the_list(
    disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("draft.tmp", "kept"):
        (tmp_path / name).touch()
    (tmp_path / "directory").mkdir()
    scan = os.scandir

    @contextmanager
    def scan_while_the_draft_is_renamed(path: str) -> Iterator[Iterator[os.DirEntry[str]]]:
        with scan(path) as entries:
            found = list(entries)
        (tmp_path / "draft.tmp").rename(tmp_path / "final")
        yield iter(found)

    monkeypatch.setattr(os, "scandir", scan_while_the_draft_is_renamed)
    assert disk.list_directory(str(tmp_path)) == [
        DirectoryEntry("directory", True, 0),
        DirectoryEntry("kept", False, 0),
    ]


def test_removing_is_silent_about_what_is_gone(disk: Disk, tmp_path: Path) -> None:
    path = str(tmp_path / "a")
    disk.replace_file(path, b"1")
    disk.remove(path)
    disk.remove(path)
    assert not disk.exists(path)
    assert disk.read_file(path) is None
    disk.remove_tree(str(tmp_path / "absent"))


def test_a_tree_is_removed_without_following_links(disk: Disk, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").write_bytes(b"1")
    tree = tmp_path / "orders-0"
    (tree / "below").mkdir(parents=True)
    (tree / "below" / "x.log").write_bytes(b"1")
    os.symlink(outside, tree / "link")
    disk.remove_tree(str(tree))
    assert not tree.exists()
    assert (outside / "keep").exists()


def test_renaming_replaces_and_reports_what_is_missing(disk: Disk, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    disk.rename(str(tmp_path / "a"), str(tmp_path / "b"))
    assert disk.read_file(str(tmp_path / "b")) == b"a"
    with pytest.raises(StorageFailure):
        disk.rename(str(tmp_path / "a"), str(tmp_path / "b"))


def test_directories_can_be_synced_and_measured(disk: Disk, tmp_path: Path) -> None:
    disk.sync_directory(str(tmp_path))
    assert disk.free_bytes(str(tmp_path)) > 0
    with pytest.raises(StorageFailure):
        disk.sync_directory(str(tmp_path / "absent"))
    with pytest.raises(StorageFailure):
        disk.free_bytes(str(tmp_path / "absent"))
    with pytest.raises(StorageFailure):
        disk.make_directory("/dev/null/below")
    with pytest.raises(StorageFailure):
        disk.remove(str(tmp_path))

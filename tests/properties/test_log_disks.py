"""The real disk and its simulated twin give the same answers to the same calls."""

import tempfile

import hypothesis.strategies as st
from hypothesis import given, settings
from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.base.disk import Disk, SystemDisk
from martlet.base.errors import StorageFailure

NAMES = st.sampled_from(["a", "b", "sub/c", "sub/d"])
DATA = st.binary(max_size=40)
CALLS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), NAMES, DATA),
        st.tuples(st.just("pwrite"), NAMES, DATA, st.integers(0, 60)),
        st.tuples(st.just("pread"), NAMES, st.integers(0, 80), st.integers(0, 80)),
        st.tuples(st.just("truncate"), NAMES, st.integers(0, 80)),
        st.tuples(st.just("sync"), NAMES),
        st.tuples(st.just("replace"), NAMES, DATA),
        st.tuples(st.just("read"), NAMES),
        st.tuples(st.just("remove"), NAMES),
        st.tuples(st.just("rename"), st.sampled_from([("a", "b"), ("b", "a"), ("sub/c", "sub/d")])),
        st.tuples(st.just("exists"), st.sampled_from(["a", "sub", "sub/c", "nowhere"])),
        st.tuples(st.just("list"), st.sampled_from(["", "/sub", "/nowhere"])),
        st.tuples(st.just("remove tree")),
    ),
    max_size=40,
)


def answer(disk: Disk, root: str, call: tuple[object, ...]) -> object:
    """What a call returns, or that it failed; names of places are left out."""
    kind, *arguments = call
    try:
        return _do(disk, root, str(kind), arguments)
    except StorageFailure:
        return "failed"


def _do(disk: Disk, root: str, kind: str, arguments: list[object]) -> object:
    first = arguments[0] if arguments else ""
    path = f"{root}/{first}"
    match kind, arguments:
        case "append", [_, bytes(data)]:
            file = disk.open(path, create=True)
            file.append(data)
            return file.size()
        case "pwrite", [_, bytes(data), int(position)]:
            disk.open(path).pwrite(data, position)
        case "pread", [_, int(size), int(position)]:
            return disk.open(path).pread(size, position)
        case "truncate", [_, int(size)]:
            disk.open(path).truncate(size)
        case "sync", _:
            disk.open(path).sync()
            disk.sync_directory(root)
        case "replace", [_, bytes(data)]:
            disk.replace_file(path, data)
        case "read", _:
            return disk.read_file(path)
        case "remove", _:
            disk.remove(path)
        case "rename", [tuple(pair)]:
            disk.rename(f"{root}/{pair[0]}", f"{root}/{pair[1]}")
        case "exists", _:
            return disk.exists(path)
        case "list", _:
            return disk.list_directory(f"{root}{first}")
        case _:
            disk.remove_tree(f"{root}/sub")
            disk.make_directory(f"{root}/sub")
    return None


@settings(max_examples=150, deadline=None)
@given(calls=CALLS)
def test_both_disks_answer_alike(calls: list[tuple[object, ...]]) -> None:
    simulated = SimDisk(SimRandomness(1))
    simulated.make_directory("top/sub")
    with tempfile.TemporaryDirectory() as place:
        real = SystemDisk()
        real.make_directory(f"{place}/top/sub")
        for call in calls:
            assert answer(simulated, "top", call) == answer(real, f"{place}/top", call), call

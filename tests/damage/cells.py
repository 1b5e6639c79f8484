"""The damage matrix: each thing that can happen to a partition's files at rest, as one cell of one table.

A cell damages one partition directory and says what that costs at most: the offsets that can no longer be read, and
whether it is in doubt where the log ends. With the offsets come the files that `martlet log check` must name.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from tests.damage.fields import CHANGES, FIELDS, changed
from tests.damage.judge import StoredBatch, batches_in

SEGMENTS_MIN: Final = 4
"""The table names the first, a middle, the last sealed and the active segment."""


@dataclass(frozen=True, slots=True)
class Hurt:
    """What one cell has done to a partition."""

    lost: frozenset[int] = frozenset()
    """Offsets that may be refused; all others must be served."""
    is_end_lost: bool = False
    """The last batch is among them, so the whole partition may be refused: it is in doubt where the log goes on."""
    names: frozenset[str] = frozenset()
    """The files of which the check names one. Of a directory as a whole its path."""
    position: int | None = None
    """Where in that file, if it is one place."""
    is_seen: bool = True
    """Whether it can be seen at all: a killed broker leaves some files behind the log, and without some it can be."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell of the table; `harm` damages a partition directory that no broker uses."""

    name: str
    harm: Callable[[Path, bool], Hurt]
    """Given the directory and whether the broker was stopped cleanly."""
    config: dict[str, str] = field(default_factory=dict)
    """Settings of the topic that this cell wants."""


# --- what can happen to a file


def _change(path: Path) -> None:
    content = bytearray(path.read_bytes())
    for quarter in (1, 2, 3):
        content[len(content) * quarter // 4] ^= 0xFF
    path.write_bytes(content)


def _halve(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _empty(path: Path) -> None:
    os.truncate(path, 0)


def _remove(path: Path) -> None:
    path.unlink()


def _make_unreadable(path: Path) -> None:
    """As if it could not be opened, which nothing else keeps a privileged user from."""
    path.unlink()
    path.symlink_to(path.name)


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FILE_DAMAGE: Final[dict[str, Callable[[Path], None]]] = {
    "changed": _change,
    "half": _halve,
    "empty": _empty,
    "gone": _remove,
    "unreadable": _make_unreadable,
    "a directory": _replace_by_directory,
}


# --- fields of batches

_SEGMENTS: Final = {"first": 0, "middle": 1, "last sealed": -2, "active": -1}
_BATCHES: Final = {
    "first": ("middle",),
    "middle": ("first", "middle"),
    "last sealed": ("middle", "last"),
    "active": ("first", "middle", "last"),
}


def _log_file(directory: Path, segment: str) -> Path:
    files = sorted(directory.glob("*.log"))
    assert len(files) >= SEGMENTS_MIN, f"{directory.name} has {len(files)} segments only"
    return files[_SEGMENTS[segment]]


def _offsets(batches: list[StoredBatch]) -> frozenset[int]:
    return frozenset(offset for batch in batches for offset in batch.offsets)


def _harm_field(segment: str, which: str, field_name: str, first_change: int, directory: Path, is_clean: bool) -> Hurt:
    file = _log_file(directory, segment)
    batches = batches_in(directory)
    mine = [batch for batch in batches if batch.path == str(file)]
    batch = mine[{"first": 0, "middle": len(mine) // 2, "last": -1}[which]]
    if field_name == "partition_leader_epoch":
        # One that a leader has had, between those of its neighbours, could be no other than the right one.
        first_change = list(CHANGES).index(("all ones", "highest bit", "a million more")[first_change % 3])
    else:
        first_change += is_clean
    at, new = changed(batch.content, field_name, first_change)
    with file.open("r+b") as log:
        log.seek(batch.position + at)
        log.write(new)
    return Hurt(
        _offsets([batch]),
        is_end_lost=batch is batches[-1],
        names=frozenset({str(file)}),
        position=batch.position,
    )


def _field_cells() -> Iterator[Cell]:
    number = count()
    for field_name in FIELDS:
        for segment in _SEGMENTS:
            for which in _BATCHES[segment]:
                harm = partial(_harm_field, segment, which, field_name, next(number))
                yield Cell(f"{field_name} in the {which} batch of the {segment} segment", harm)


# --- whole files


def _harm_log(segment: str, damage: str, directory: Path, is_clean: bool) -> Hurt:
    file = _log_file(directory, segment)
    batches = batches_in(directory)
    mine = [batch for batch in batches if batch.path == str(file)]
    size = file.stat().st_size
    FILE_DAMAGE[damage](file)
    if damage == "changed":
        after = file.read_bytes()
        hurt = [batch for batch in mine if after[batch.position :][: len(batch.content)] != batch.content]
        assert hurt
    else:
        kept = size // 2 if damage == "half" else 0
        hurt = [batch for batch in mine if batch.position + len(batch.content) > kept]
    # What is missing at the end of a file is noticed at the file before, or at the directory when it is the first.
    names = {batch.path for batch in batches} | {str(directory)}
    return Hurt(_offsets(hurt), is_end_lost=batches[-1] in hurt, names=frozenset(names))


def _log_cells() -> Iterator[Cell]:
    for segment in _SEGMENTS:
        for damage in FILE_DAMAGE:
            yield Cell(f"the {segment} segment {damage}", partial(_harm_log, segment, damage))


def _harm_index(segment: str, suffix: str, damage: str, directory: Path, is_clean: bool) -> Hurt:
    file = _log_file(directory, segment).with_suffix(suffix)
    FILE_DAMAGE[damage](file)
    is_shorter = damage in ("half", "empty", "gone")
    may_be_unfinished = is_shorter or (suffix == ".txnindex" and damage == "changed")  # which is not only appended to
    is_seen = is_clean or segment != "active" or not may_be_unfinished
    return Hurt(names=frozenset({str(file)}), is_seen=is_seen)


def _harm_named(pattern: str, damage: str, directory: Path, is_clean: bool) -> Hurt:
    file = max(directory.glob(pattern))
    FILE_DAMAGE[damage](file)
    # Of a killed broker's snapshots none must be there.
    return Hurt(names=frozenset({str(file)}), is_seen=is_clean or damage != "gone" or file.suffix != ".snapshot")


def _misspell(directory: Path, is_clean: bool) -> Hurt:
    file = directory / "partition.metadata"
    content = bytearray(file.read_bytes())
    at = content.index(b"topic_id: ") + len(b"topic_id: ")
    content[at] = ord("A") if content[at] != ord("A") else ord("B")
    file.write_bytes(content)
    return Hurt(names=frozenset({str(file)}))


def _harm_gaps(damage: str, directory: Path, is_clean: bool) -> Hurt:
    """Without the file the checkpoint of compaction still says that there are gaps."""
    return replace(_harm_named("known-gaps", damage, directory, is_clean), is_seen=damage != "gone")


_COMPACTED: Final = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "file.delete.delay.ms": "0"}


def _small_file_cells() -> Iterator[Cell]:
    yield Cell("partition.metadata with another letter", _misspell)
    for damage in ("changed", "half", "empty", "gone", "unreadable"):
        for segment in ("middle", "active"):
            for suffix in (".index", ".timeindex", ".txnindex"):
                yield Cell(f"{suffix} of the {segment} segment {damage}", partial(_harm_index, segment, suffix, damage))
        for name in ("*.snapshot", "leader-epoch-checkpoint", "partition.metadata", "aborted-transactions"):
            yield Cell(f"{name} {damage}", partial(_harm_named, name, damage))
        yield Cell(f"known-gaps {damage}", partial(_harm_gaps, damage), _COMPACTED)


# --- the directory


def _harm_directory(damage: str, directory: Path, is_clean: bool) -> Hurt:
    batches = batches_in(directory)
    shutil.rmtree(directory)
    if damage == "empty":
        directory.mkdir()
    elif damage == "unreadable":
        directory.symlink_to(directory.name)
    elif damage == "a file":
        directory.touch()
    return Hurt(_offsets(batches), is_end_lost=True, names=frozenset({str(directory)}))


def _directory_cells() -> Iterator[Cell]:
    for damage in ("gone", "empty", "unreadable", "a file"):
        yield Cell(f"the directory {damage}", partial(_harm_directory, damage))


CELLS: Final = (*_field_cells(), *_log_cells(), *_small_file_cells(), *_directory_cells())

"""Producer state as a file: the format, and the snapshot files of a partition.

Rules: a snapshot saves a scan, it never is the truth; one that cannot be read is removed and the log read instead.
Therefore snapshots are not synced. They must however never outlive the history they describe: a truncation
removes the snapshots beyond it, durably, before anything is appended again.

How it works: Kafka's layout, big-endian: i16 version 1, u32 CRC-32C of all that follows, i32 count, then per entry i64
producer id, i16 epoch, i32 last sequence, i64 last offset, i32 offset delta, i64 timestamp, i32 coordinator epoch, i64
first offset of the current transaction. Kafka keeps one batch per producer in a snapshot. Martlet writes one entry per
remembered batch, oldest first: Kafka's reader lets the last win, ours restores the whole window, so that a restart does
not turn retries into gaps. An entry with last offset -1 is a producer without batches.
Proved by: tests/unit/log/test_producer_snapshot.py
"""

from collections.abc import Iterator
from struct import Struct, error
from typing import Final

from crc32c import crc32c

from martlet.base.disk import Disk
from martlet.base.errors import DiskFull
from martlet.log.file_names import SNAPSHOT, offset_file
from martlet.log.producer_state import KnownBatch, ProducerEntry, ProducerStates
from martlet.log.rebuilt_files import open_rebuilt, read_rebuilt

_VERSION: Final = 1
_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_ENTRY: Final = Struct(">qhiqiqiq")
_DRAFT: Final = "snapshot.draft"
_SEQUENCE_MODULUS: Final = 1 << 31


def encode_producers(producers: ProducerStates) -> bytes:
    """All producers with all their batches."""
    entries = [
        _ENTRY.pack(
            producer_id,
            entry.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp_ms,
            entry.coordinator_epoch,
            entry.current_txn_first_offset,
        )
        for producer_id, entry in producers.items()
        for batch in (entry.batches or (KnownBatch(-1, -1, -1, 0, entry.last_timestamp_ms),))
    ]
    body = _COUNT.pack(len(entries)) + b"".join(entries)
    return _HEAD.pack(_VERSION, crc32c(body)) + body


def decode_producers(content: bytes) -> ProducerStates | None:
    """The inverse of `encode_producers`; None when the bytes are damaged or of another version."""
    try:
        version, crc = _HEAD.unpack_from(content)
        (count,) = _COUNT.unpack_from(content, _HEAD.size)
    except error:
        return None
    start = _HEAD.size + _COUNT.size
    if version != _VERSION or crc32c(content[_HEAD.size :]) != crc or count * _ENTRY.size != len(content) - start:
        return None
    producers = ProducerStates()
    for fields in _ENTRY.iter_unpack(content[start:]):
        _restore(producers, *fields)
    producers.restore_transactions()
    return producers


def _restore(  # the fields of one entry, in the order of the file
    producers: ProducerStates,
    producer_id: int,
    epoch: int,
    last_sequence: int,
    last_offset: int,
    offset_delta: int,
    timestamp_ms: int,
    coordinator_epoch: int,
    current_txn_first_offset: int,
) -> None:
    entry = producers.get(producer_id)
    if entry is None or entry.epoch != epoch:
        entry = ProducerEntry(epoch, timestamp_ms)
        producers.restore(producer_id, entry)
    entry.coordinator_epoch = coordinator_epoch
    entry.current_txn_first_offset = current_txn_first_offset
    if last_offset >= 0:
        first_sequence = (last_sequence - offset_delta) % _SEQUENCE_MODULUS
        entry.add(KnownBatch(first_sequence, last_sequence, last_offset, offset_delta, timestamp_ms))


class ProducerSnapshots:
    """The snapshot files of one partition's directory, by offset."""

    __slots__ = ("_directory", "_disk", "_offsets")

    def __init__(self, disk: Disk, directory: str, offsets: list[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._offsets = sorted(offsets)

    def __iter__(self) -> Iterator[int]:
        return iter(self._offsets)

    @property
    def latest_offset(self) -> int:
        return self._offsets[-1] if self._offsets else -1

    def write(self, offset: int, producers: ProducerStates) -> None:
        """Save the state at `offset`; a full disk only means that a restart reads more of the log."""
        draft = f"{self._directory}/{_DRAFT}"
        try:
            file = open_rebuilt(self._disk, draft)
            file.truncate(0)
            file.append(encode_producers(producers))
        except DiskFull:
            self._disk.remove(draft)
            return
        self._disk.rename(draft, self._path(offset))
        if offset not in self._offsets:
            self._offsets.append(offset)
            self._offsets.sort()

    def load_latest(self, *, up_to_offset: int) -> tuple[int, ProducerStates] | None:
        """The newest readable snapshot not beyond `up_to_offset`; unreadable ones are removed on the way."""
        for offset in [offset for offset in reversed(self._offsets) if offset <= up_to_offset]:
            producers = decode_producers(read_rebuilt(self._disk, self._path(offset)) or b"")
            if producers is not None:
                return offset, producers
            self._remove(offset)
        return None

    def remove_beyond(self, offset: int) -> bool:
        """Remove the snapshots after `offset`; whether there were any, which the caller then makes durable."""
        obsolete = [other for other in self._offsets if other > offset]
        for other in obsolete:
            self._remove(other)
        return bool(obsolete)

    def remove_before(self, offset: int) -> None:
        """Remove the snapshots before `offset`, where the log now begins."""
        for other in [other for other in self._offsets if other < offset]:
            self._remove(other)

    def keep_only(self, bases: set[int]) -> None:
        """Remove all but those where a segment begins and the newest one."""
        for offset in self._offsets[:-1]:
            if offset not in bases:
                self._remove(offset)

    def remove_all(self) -> None:
        self.remove_beyond(-1)

    def _remove(self, offset: int) -> None:
        self._disk.remove(self._path(offset))
        self._offsets = [other for other in self._offsets if other != offset]

    def _path(self, offset: int) -> str:
        return f"{self._directory}/{offset_file(offset, SNAPSHOT)}"

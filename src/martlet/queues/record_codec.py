"""The bytes of a state record, key and value, in the state log.

    key     version u8 = 0 · topic id 16 bytes · partition varint · subscription, UTF-8, up to the end
    value   version u8 = 0 · flags u8 (1 snapshot, 2 packed, 4 delays) · epoch · start · frontier - start ·
            [begin · due · offset, of what was released] · [packed cells] · number of runs · runs ·
            number of strays · strays
    run     offsets left out since the last run · length - 1 · cell u8 (+ 128 with a count) · [count u8]
    stray   offset · cell u8 · count u8 · ready_ms · reason u8

Numbers without a width are unsigned variable-length integers. Packed cells are two bits a message from `start` to the
frontier, lowest bits first: 0 waiting, 1 acknowledged, 2 moved aside, 3 see the runs. Only snapshots are packed, and
only where that is shorter.

Rules: bytes of a log are never trusted: whatever is no record raises ProtocolViolation, and nothing is allocated for
more messages than WINDOW_MAX.

Proved by: tests/unit/queues/test_record_codec.py, tests/properties/test_queue_records.py
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from martlet.base.errors import ProtocolViolation
from martlet.base.ids import TopicId
from martlet.queues.cells import ACKNOWLEDGED, BACKING_OFF, COPYING, FINISHED, ONE, STRAY, WAITING, Cell
from martlet.queues.records import ReleasedUpTo, StateRecord, StrayEntry
from martlet.queues.window import CellRun
from martlet.wire.primitives import read_uvarlong

WINDOW_MAX: Final = 16_000_000
"""More messages than any window has; a record that claims more is damaged."""

_VERSION: Final = 0
_SNAPSHOT: Final = 1
_PACKED: Final = 2
_DELAYS: Final = 4
_HAS_COUNT: Final = 0x80
_OFFSET_MAX: Final = (1 << 63) - 1
_STORED_RUNS: Final = FINISHED | {WAITING, STRAY}
_STORED_STRAYS: Final = FINISHED | {WAITING, BACKING_OFF, COPYING}

_CODES: Final = {WAITING: 0, ACKNOWLEDGED: 1, STRAY: 2}
_CELLS: Final = (WAITING, ACKNOWLEDGED, STRAY)
_OTHER: Final = 3
_UNPACK: Final = tuple(bytes(byte >> shift & 3 for byte in range(256)) for shift in (0, 2, 4, 6))


class StateKey(NamedTuple):
    """Whose state a record is."""

    subscription: str
    topic_id: TopicId
    partition: int


def encode_key(key: StateKey) -> bytes:
    out = bytearray((_VERSION,))
    out += key.topic_id
    _put(out, key.partition)
    return bytes(out) + key.subscription.encode()


def decode_key(data: bytes) -> StateKey:
    if len(data) < 18 or data[0] != _VERSION:
        raise ProtocolViolation(f"a key of {len(data)} bytes is none of a state record")
    partition, position = read_uvarlong(data, 17)
    try:
        return StateKey(data[position:].decode(), TopicId(data[1:17]), partition)
    except UnicodeDecodeError:
        raise ProtocolViolation("the subscription in the key of a state record is not UTF-8") from None


def encode_state(record: StateRecord) -> bytes:
    if not record.is_snapshot:
        return _encode(record, 0, b"", record.runs)
    plain = _encode(record, _SNAPSHOT, b"", record.runs)
    if 4 * len(plain) <= record.frontier - record.start:
        return plain
    others = [run for run in record.runs if run.cell not in _CODES or run.attempts]
    packed = _encode(record, _SNAPSHOT | _PACKED, _pack(record), others)
    return min(plain, packed, key=len)


def _encode(record: StateRecord, flags: int, packed: bytes, runs: Iterable[CellRun]) -> bytes:
    released = record.released
    out = bytearray((_VERSION, flags if released is None else flags | _DELAYS))
    _put(out, record.epoch)
    _put(out, record.start)
    _put(out, record.frontier - record.start)
    for number in released or ():
        _put(out, number)
    out += packed
    runs = list(runs)
    _put(out, len(runs))
    position = record.start
    for first, last, cell, count in runs:
        _put(out, first - position)
        _put(out, last - first)
        if count:
            out += bytes((cell | _HAS_COUNT, count))
        else:
            out.append(cell)
        position = last + 1
    _put(out, len(record.strays))
    for stray in record.strays:
        _put(out, stray.offset)
        out += bytes((stray.cell, stray.attempts))
        _put(out, stray.ready_ms)
        out.append(stray.reason)
    return bytes(out)


def _pack(record: StateRecord) -> bytes:
    codes = bytearray(-(-(record.frontier - record.start) // 4) * 4)
    for run in record.runs:
        code = _OTHER if run.attempts else _CODES.get(run.cell, _OTHER)
        first, length = run.first - record.start, run.last - run.first + 1
        codes[first : first + length] = ONE[code] * length
    packed = 0
    for at in range(4):
        packed |= int.from_bytes(codes[at::4], "little") << 2 * at
    return packed.to_bytes(len(codes) // 4, "little")


def decode_state(data: bytes) -> StateRecord:
    """The record in a value; ProtocolViolation for anything else."""
    try:
        record, position = _decode(data)
    except IndexError:
        raise ProtocolViolation(f"a state record ends after {len(data)} bytes, inside of a value") from None
    if position != len(data):
        raise ProtocolViolation(f"{len(data) - position} bytes follow where a state record should end")
    return record


def _decode(data: bytes) -> tuple[StateRecord, int]:
    version, flags = data[0], data[1]
    if version != _VERSION:
        raise ProtocolViolation(f"a state record of version {version}, and we read {_VERSION}")
    if flags & ~_DELAYS not in (0, _SNAPSHOT, _SNAPSHOT | _PACKED):
        raise ProtocolViolation(f"a state record with the flags {flags}")
    epoch, position = read_uvarlong(data, 2)
    start, position = read_uvarlong(data, position)
    length, position = read_uvarlong(data, position)
    if length > WINDOW_MAX or start + length > _OFFSET_MAX:
        raise ProtocolViolation(f"a state record of {length} messages from offset {start} on")
    released: ReleasedUpTo | None = None
    if flags & _DELAYS:
        begin, position = read_uvarlong(data, position)
        due_ms, position = read_uvarlong(data, position)
        offset, position = read_uvarlong(data, position)
        if max(begin, due_ms, offset) > _OFFSET_MAX:
            raise ProtocolViolation(f"delayed messages released up to {due_ms}, offset {offset}, from {begin} on")
        released = ReleasedUpTo(begin, due_ms, offset)
    packed: list[CellRun] = []
    if flags & _PACKED:
        size = -(-length // 4)
        packed = list(_unpack(data[position : position + size], start, length))
        position += size
    runs, position = _read_runs(data, position, start, start + length)
    if packed:
        runs = sorted((*packed, *runs))
        if any(one.last >= other.first for one, other in pairwise(runs)):
            raise ProtocolViolation("the packed cells and the runs of a state record overlap")
    strays, position = _read_strays(data, position)
    record = StateRecord(epoch, start, start + length, tuple(runs), tuple(strays), bool(flags & _SNAPSHOT), released)
    return record, position


def _unpack(packed: bytes, start: int, length: int) -> Iterator[CellRun]:
    if len(packed) != -(-length // 4):
        raise ProtocolViolation("a state record ends inside of its packed cells")
    codes = bytearray(4 * len(packed))
    for at, table in enumerate(_UNPACK):
        codes[at::4] = packed.translate(table)
    at = 0
    while at < length:
        code, first, step = codes[at], at, 64
        while at < length:
            part = codes[at : min(at + step, length)]
            rest = len(part.lstrip(ONE[code]))
            at += len(part) - rest
            if rest:
                break
            step *= 2
        if code not in (0, _OTHER):
            yield CellRun(start + first, start + at - 1, _CELLS[code], 0)


def _read_runs(data: bytes, position: int, start: int, frontier: int) -> tuple[list[CellRun], int]:
    count, position = read_uvarlong(data, position)
    runs: list[CellRun] = []
    next_offset = start
    for _ in range(_believable(count, 3, data, position)):
        gap, position = read_uvarlong(data, position)
        more, position = read_uvarlong(data, position)
        cell, attempts = data[position], 0
        position += 1
        if cell & _HAS_COUNT:
            cell, attempts = cell - _HAS_COUNT, data[position]
            position += 1
        first = next_offset + gap
        next_offset = first + more + 1
        if cell not in _STORED_RUNS or next_offset > frontier:
            raise ProtocolViolation(f"a run of state {cell} from {first} to {next_offset - 1} in a state record")
        runs.append(CellRun(first, next_offset - 1, cell, attempts))
    return runs, position


def _read_strays(data: bytes, position: int) -> tuple[list[StrayEntry], int]:
    count, position = read_uvarlong(data, position)
    strays: list[StrayEntry] = []
    for _ in range(_believable(count, 5, data, position)):
        offset, position = read_uvarlong(data, position)
        cell, attempts = data[position], data[position + 1]
        ready_ms, position = read_uvarlong(data, position + 2)
        reason: Cell = data[position]
        position += 1
        if cell not in _STORED_STRAYS or max(offset, ready_ms) > _OFFSET_MAX:
            raise ProtocolViolation(f"a message of state {cell} at offset {offset} among those moved aside")
        strays.append(StrayEntry(offset, cell, attempts, ready_ms, reason))
    return strays, position


def _believable(count: int, bytes_min: int, data: bytes, position: int) -> int:
    if count * bytes_min > len(data) - position:
        raise ProtocolViolation(f"{count} entries in {len(data) - position} bytes of a state record")
    return count


def _put(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)

"""State records: whatever is written is read back, and whatever is read is a record or a ProtocolViolation."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from martlet.base.errors import ProtocolViolation
from martlet.queues.cells import BACKING_OFF, COPYING, FINISHED, REJECTED, STRAY, WAITING, Cell
from martlet.queues.record_codec import decode_state, encode_state
from martlet.queues.records import StateRecord, StrayEntry
from martlet.queues.window import CellRun

CELLS = st.sampled_from([*sorted(FINISHED), STRAY])
STATES = st.one_of(st.tuples(CELLS, st.just(0)), st.tuples(st.just(WAITING), st.integers(1, 255)))
STRAYS = st.builds(
    StrayEntry,
    st.integers(0, 1 << 62),
    st.sampled_from([*sorted(FINISHED), WAITING, BACKING_OFF, COPYING]),
    st.integers(0, 255),
    st.integers(0, 1 << 45),
    st.sampled_from([WAITING, REJECTED]),
)


@st.composite
def records(draw: st.DrawFn) -> StateRecord:
    start = at = draw(st.integers(0, 1 << 50))
    runs: list[CellRun] = []
    for _ in range(draw(st.integers(0, 60))):
        first = at + draw(st.integers(0, 3))
        at = first + draw(st.sampled_from([1, 1, 1, 2, 300]))
        cell: Cell
        cell, attempts = draw(STATES)
        if runs and runs[-1].last == first - 1 and runs[-1][2:] == (cell, attempts):
            first += 1
            at += 1
        runs.append(CellRun(first, at - 1, cell, attempts))
    frontier = at + draw(st.integers(0, 2000))
    strays = draw(st.lists(STRAYS, max_size=5))
    return StateRecord(draw(st.integers(0, 9)), start, frontier, tuple(runs), tuple(strays), draw(st.booleans()))


@given(records())
def test_a_record_survives_its_bytes(record: StateRecord) -> None:
    assert decode_state(encode_state(record)) == record


@given(records(), st.data())
def test_damaged_bytes_give_a_record_or_a_violation(record: StateRecord, data: st.DataObject) -> None:
    raw = bytearray(encode_state(record))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(ProtocolViolation):
        decode_state(bytes(raw))


@given(st.binary(max_size=60))
def test_any_bytes_give_a_record_or_a_violation(raw: bytes) -> None:
    with suppress(ProtocolViolation):
        decode_state(b"\x00" + raw)

"""Records: three indexes that agree on every input, two encoders that agree, and the clients' own codecs.

The property of the indexes is over all bytes: valid batches, batches with bytes changed, cut or inserted, and noise.
They return the same index, or all of them raise CorruptRecords.
"""

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.wire.batch import build_batch, iterate_batches, read_batch_header
from martlet.wire.compression import Compression
from martlet.wire.records import native, plain, vectorised
from martlet.wire.records.encode import RecordFields, encode_records, encode_records_plain
from martlet.wire.records.index import CorruptRecords, RecordIndex, RecordSpan, compiled_index, unpack_batches
from martlet.wire.records.record import read_records

Indexer = Callable[[bytes, Sequence[RecordSpan]], RecordIndex]

fields = st.none() | st.binary(max_size=12) | st.binary(min_size=60, max_size=140)
names = st.text(max_size=6).map(lambda text: text.encode(errors="replace").decode()) | st.binary(max_size=4)
headers = st.lists(st.tuples(names, fields), max_size=3) | st.just([("h", None)] * 40)
timestamps = st.integers(0, 300) | st.integers(-(1 << 40), 1 << 50)
records = st.lists(st.tuples(timestamps, fields, fields, headers), min_size=1, max_size=8)
spans = st.builds(
    RecordSpan,
    start=st.just(0),
    end=st.just(0),
    record_count=st.integers(0, 12),
    base_offset=st.integers(0, 1 << 62),
    last_offset_delta=st.integers(0, 12) | st.just((1 << 31) - 1),
    timestamp_ms=st.integers(-(1 << 63), (1 << 63) - 1) | st.just(0),
    uses_log_append_time=st.booleans(),
)


def outcome(index: Indexer, data: bytes, batches: Sequence[RecordSpan]) -> list[Any] | None:
    """The index in plain lists, or None where the input is refused."""
    try:
        found = index(data, batches)
    except CorruptRecords:
        return None
    return [found.record_count, *(column.tolist() for column in found[1:])]


def all_agree(data: bytes, batches: Sequence[RecordSpan]) -> list[Any] | None:
    expected = outcome(plain.index_records, data, batches)
    assert outcome(compiled_index, data, batches) == expected
    assert outcome(vectorised.index_records, data, batches) == expected
    return expected


@given(st.lists(st.tuples(records, st.integers(0, 1 << 40)), min_size=1, max_size=3))
@settings(max_examples=150, deadline=None)
def test_the_indexes_agree_on_valid_batches(batches: list[tuple[list[RecordFields], int]]) -> None:
    fetched = b"".join(build_batch(rows, base_offset=offset) for rows, offset in batches)
    data, found = unpack_batches(fetched, max_bytes=1 << 20)
    expected = all_agree(data, found)
    assert expected is not None
    assert expected[0] == sum(len(rows) for rows, _ in batches)


@st.composite
def damaged_records(draw: st.DrawFn) -> tuple[bytes, RecordSpan]:
    rows = draw(records)
    data = bytearray(encode_records(rows, rows[0][0]))
    count = len(rows)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        change = draw(st.sampled_from(["flip", "set", "cut", "insert", "remove"]))
        if change == "flip" and data:
            data[at] ^= 1 << draw(st.integers(0, 7))
        elif change == "set" and data:
            data[at] = draw(st.sampled_from([0x00, 0x01, 0x7F, 0x80, 0xFF]))
        elif change == "cut":
            del data[at:]
        elif change == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=11) | st.just(b"\xff" * 10))
        elif change == "remove":
            del data[at : at + 1]
    count += draw(st.sampled_from([0, 0, 0, 1, -1]))
    return bytes(data), RecordSpan(0, len(data), max(count, 0), 7, len(rows) - 1, rows[0][0], False)


@given(damaged_records())
@settings(max_examples=500, deadline=None)
def test_the_indexes_agree_on_damaged_batches(damaged: tuple[bytes, RecordSpan]) -> None:
    data, span = damaged
    all_agree(data, [span])


@given(st.binary(max_size=60), spans, st.integers(0, 4), st.integers(0, 4))
@settings(max_examples=300, deadline=None)
def test_the_indexes_agree_on_noise(noise: bytes, span: RecordSpan, before: int, behind: int) -> None:
    all_agree(noise, [span._replace(start=before, end=max(len(noise) - behind, before))])


@given(records)
@settings(max_examples=60, deadline=None)
def test_records_cut_anywhere_are_refused_by_all(rows: list[RecordFields]) -> None:
    data = encode_records(rows, rows[0][0])
    for cut in {0, 1, len(data) // 3, len(data) // 2, len(data) - 2, len(data) - 1} & set(range(len(data))):
        span = RecordSpan(0, cut, len(rows), 0, len(rows) - 1, 0, False)
        assert all_agree(data[:cut], [span]) is None
        # The bytes are there, but past the span.
        assert all_agree(data, [span]) is None


@given(records, timestamps)
@settings(max_examples=150, deadline=None)
def test_the_encoders_agree(rows: list[RecordFields], base_timestamp: int) -> None:
    encoded = encode_records_plain(rows, base_timestamp)
    assert native.encode_records(rows, base_timestamp) == encoded
    assert encode_records(rows, base_timestamp) == encoded


@given(records, st.sampled_from(list(Compression)), st.integers(0, 1 << 60))
@settings(max_examples=100, deadline=None)
def test_what_was_built_is_read_back(rows: list[RecordFields], codec: Compression, base_offset: int) -> None:
    batch = build_batch(rows, base_offset=base_offset, compression=codec)
    assert len(list(iterate_batches(batch))) == 1
    assert read_batch_header(batch).next_offset == base_offset + len(rows)
    found = read_records(batch, 1 << 20, check_crc=True)
    assert [record.offset for record in found] == list(range(base_offset, base_offset + len(rows)))
    for record, (timestamp_ms, key, value, written) in zip(found, rows, strict=True):
        assert (record.timestamp_ms, record.key, record.value) == (timestamp_ms, key, value)
        assert record.headers == [
            (name if isinstance(name, str) else name.decode(errors="replace"), field) for name, field in written
        ]

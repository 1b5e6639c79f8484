"""The record index: every implementation, on records good and bad, and the choice between them."""

import subprocess
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.wire.batch import HEADER_BYTES, build_batch, iterate_batches, read_batch_header, stamp_log_append_time
from martlet.wire.compression import Compression, DecompressionLimit
from martlet.wire.records import compiled, native, plain, vectorised
from martlet.wire.records.encode import RecordFields, encode_records, varint
from martlet.wire.records.index import (
    CorruptRecords,
    RecordIndex,
    RecordSpan,
    codec_name,
    compiled_index,
    index_records,
    unpack_batches,
)
from martlet.wire.records.record import records_of_index

Indexer = Callable[[bytes, Sequence[RecordSpan]], RecordIndex]
INDEXERS: dict[str, Indexer] = {
    "chosen": index_records,
    "compiled": compiled_index,
    "numpy": vectorised.index_records,
    "plain": plain.index_records,
}
every_indexer = pytest.mark.parametrize("index", INDEXERS.values(), ids=INDEXERS.keys())

RECORDS: list[RecordFields] = [
    (1000, b"key", b"value", ()),
    (1005, None, b"v" * 300, [("trace", b"abc"), ("none", None)]),
    (990, b"", None, [("", b"")]),
    (1000, b"k" * 70000, b"", ()),
]


def span_of(data: bytes, count: int = 1, **changes: Any) -> RecordSpan:
    return RecordSpan(0, len(data), count, 100, max(count - 1, 0), 1000, False)._replace(**changes)


def columns(index: RecordIndex) -> list["memoryview[int]"]:
    return list(index[1:])


def record(*fields: bytes, length: int | None = None) -> bytes:
    body = b"".join(fields)
    return varint(len(body) if length is None else length) + body


GOOD = record(b"\0", varint(0), varint(0), varint(1), b"k", varint(1), b"v", varint(0))


@every_indexer
def test_positions_offsets_and_times_of_a_batch_are_found(index: Indexer) -> None:
    data = encode_records(RECORDS, 1000)
    found = index(data, [span_of(data, 4)])
    assert found.record_count == 4
    assert found.offsets.tolist() == [100, 101, 102, 103]
    assert found.timestamps.tolist() == [1000, 1005, 990, 1000]
    assert found.null_keys.tolist() == [0, 1, 0, 0]
    assert found.null_values.tolist() == [0, 0, 1, 0]
    assert found.header_counts.tolist() == [0, 2, 1, 0]
    assert found.header_null_values.tolist() == [0, 1, 0]
    assert data[found.bounds[0] : found.bounds[1]] == b"key"
    assert data[found.bounds[6] : found.bounds[7]] == b"v" * 300
    assert found.bounds.tolist() == sorted(found.bounds)
    assert data[found.header_bounds[0] : found.header_bounds[1]] == b"trace"
    bounds = found.record_bounds.tolist()
    assert (bounds[0], bounds[-1]) == (0, len(data))
    assert bounds[1:-1:2] == bounds[2::2]
    assert [view.format for view in columns(found)] == list("iiqqBBiiB")


@every_indexer
def test_the_indexed_records_read_back_as_they_were(index: Indexer) -> None:
    data = encode_records(RECORDS, 1000)
    records = records_of_index(data, index(data, [span_of(data, 4)]))
    assert [(r.timestamp_ms, r.key, r.value, tuple(r.headers)) for r in records] == [
        (time, key, value, tuple(headers)) for time, key, value, headers in RECORDS
    ]


@every_indexer
def test_several_batches_make_one_index(index: Indexer) -> None:
    batches = [build_batch(RECORDS[:2], base_offset=10), build_batch(RECORDS, base_offset=70), build_batch(RECORDS[:1])]
    data, spans = unpack_batches(b"".join(batches), max_bytes=1 << 20)
    found = index(data, spans)
    assert found.offsets.tolist() == [10, 11, 70, 71, 72, 73, 0]
    assert found.timestamps.tolist() == [1000, 1005, 1000, 1005, 990, 1000, 1000]


@every_indexer
def test_nothing_gives_an_empty_index(index: Indexer) -> None:
    for spans in ([], [span_of(b"", 0)]):
        found = index(b"", spans)
        assert found.record_count == 0
        assert [len(view) for view in columns(found)] == [0] * 9


@every_indexer
def test_a_record_of_very_many_headers_is_indexed(index: Indexer) -> None:
    headers = [(f"name-{number}", b"x" * (number % 3)) for number in range(500)]
    data = encode_records([(0, None, None, ()), (0, None, None, headers), (0, None, None, headers[:2])], 0)
    found = index(data, [span_of(data, 3)])
    assert found.header_counts.tolist() == [0, 500, 2]
    assert records_of_index(data, found)[1].headers == headers


@every_indexer
def test_one_time_for_all_records_overrides_their_deltas(index: Indexer) -> None:
    data = encode_records(RECORDS, 1000)
    assert index(data, [span_of(data, 4, uses_log_append_time=True, timestamp_ms=7)]).timestamps.tolist() == [7] * 4


@every_indexer
def test_offsets_may_have_gaps_as_compaction_leaves_them(index: Indexer) -> None:
    data = record(b"\0", varint(0), varint(3), b"\1\1\0") + record(b"\0", varint(0), varint(90), b"\1\1\0")
    assert index(data, [span_of(data, 2, last_offset_delta=99)]).offsets.tolist() == [103, 190]


@every_indexer
def test_the_widest_numbers_are_read(index: Indexer) -> None:
    lowest, highest = -(1 << 63), (1 << 63) - 1
    for delta in (lowest, highest):
        data = record(b"\0", varint(delta), varint((1 << 31) - 1), b"\1\1\0")
        found = index(data, [span_of(data, timestamp_ms=0, last_offset_delta=(1 << 31) - 1)])
        assert found.timestamps.tolist() == [delta]
        assert found.offsets.tolist() == [100 + (1 << 31) - 1]


BAD = {
    "length beyond the batch": record(GOOD[1:], length=len(GOOD)),
    "length short of the record": record(GOOD[1:], length=len(GOOD) - 2) + b"\0",
    "negative length": record(GOOD[1:], length=-1),
    "bytes behind the last record": GOOD + b"\0",
    "key beyond the record": record(b"\0\0\0", varint(100), b"k", b"\2v\0"),
    "value beyond the record": record(b"\0\0\0\2k", varint(3), b"v\0"),
    "longest key": record(b"\0\0\0", varint((1 << 31) - 1), b"k\2v\0"),
    "header count beyond the record": record(b"\0\0\0\1\1", varint(3), b"\0\0\0\0"),
    "enormous header count": record(b"\0\0\0\1\1", varint((1 << 31) - 1)),
    "negative header count": record(b"\0\0\0\1\1", varint(-1)),
    "header without a name": record(b"\0\0\0\1\1", varint(1), varint(-1), varint(0)),
    "header value beyond the record": record(b"\0\0\0\1\1", varint(1), b"\0", varint(5), b"abc"),
    "bytes behind the headers": record(b"\0\0\0\1\1", varint(1), b"\0\0", b"\0"),
    "bytes behind no headers": record(b"\0\0\0\1\1\0", b"\0"),
    "six-byte varint": record(b"\0\0", b"\x80\x80\x80\x80\x80\0", b"\1\1\0"),
    "varint of 33 bits": record(b"\0\0", b"\x80\x80\x80\x80\x10", b"\1\1\0"),
    "eleven-byte varlong": record(b"\0", b"\x80" * 10 + b"\0", b"\0\1\1\0"),
    "varlong of 65 bits": record(b"\0", b"\x80" * 9 + b"\2", b"\0\1\1\0"),
    "number cut by the record's end": record(b"\0\0\0\1\1", b"\x80") + b"\0",
    "offset delta beyond the batch": record(b"\0\0", varint(1), b"\1\1\0"),
    "negative offset delta": record(b"\0\0", varint(-1), b"\1\1\0"),
    "timestamp beyond 64 bits": record(b"\0", varint((1 << 63) - 1), b"\0\1\1\0"),
    "record of no bytes": b"\0" * 7,
}


@every_indexer
@pytest.mark.parametrize("data", BAD.values(), ids=BAD.keys())
def test_bad_records_are_refused(index: Indexer, data: bytes) -> None:
    with pytest.raises(CorruptRecords) as caught:
        index(data, [span_of(data)])
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE


@every_indexer
def test_offset_deltas_must_ascend(index: Indexer) -> None:
    row = record(b"\0\0", varint(1), b"\1\1\0")
    for rows in (row + row, row + record(b"\0\0", varint(0), b"\1\1\0")):
        with pytest.raises(CorruptRecords):
            index(rows, [span_of(rows, 2)])
    # A new batch starts again.
    assert (
        index(row + row, [RecordSpan(0, 7, 1, 5, 1, 0, False), RecordSpan(7, 14, 1, 9, 1, 0, False)]).record_count == 2
    )


@every_indexer
def test_too_few_and_too_many_records_are_refused(index: Indexer) -> None:
    data = encode_records(RECORDS, 1000)
    for count in (0, 3, 5, 1 << 30):
        with pytest.raises(CorruptRecords):
            index(data, [span_of(data, count, last_offset_delta=1 << 30)])


@every_indexer
@pytest.mark.parametrize(
    "changes",
    [
        {"start": -1},
        {"end": 10**6},
        {"start": 9, "end": 8},
        {"record_count": -1},
        {"base_offset": -1},
        {"base_offset": (1 << 63) - 1, "last_offset_delta": 1},
        {"timestamp_ms": 1 << 63},
        {"last_offset_delta": -1},
    ],
)
def test_impossible_spans_are_refused(index: Indexer, changes: dict[str, int]) -> None:
    with pytest.raises(CorruptRecords):
        index(GOOD, [span_of(GOOD, **changes)])


def test_unpacking_mixes_compressed_and_bare_batches() -> None:
    batches = [
        build_batch(RECORDS, base_offset=index * 4, compression=codec) for index, codec in enumerate(Compression)
    ]
    data, spans = unpack_batches(b"".join(batches) + batches[0][:70], max_bytes=1 << 20)
    assert index_records(data, spans).offsets.tolist() == list(range(20))
    assert [span.end - span.start for span in spans] == [len(encode_records(RECORDS, 1000))] * 5


def test_unpacking_bare_batches_copies_nothing() -> None:
    fetched = build_batch(RECORDS) + build_batch(RECORDS)
    data, spans = unpack_batches(fetched, max_bytes=1 << 20)
    assert data is fetched
    assert spans[0].start == HEADER_BYTES


def test_unpacking_only_the_wanted_batches() -> None:
    fetched = b"".join(build_batch(RECORDS, base_offset=offset, compression=offset % 2) for offset in (0, 10, 21))
    wanted = [(position, header) for position, header in iterate_batches(fetched) if header.base_offset != 10]
    data, spans = unpack_batches(fetched, wanted, max_bytes=1 << 20)
    assert index_records(data, spans).offsets.tolist() == [0, 1, 2, 3, 21, 22, 23, 24]


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.ZSTD])
def test_unpacking_limits_the_sum_of_all_batches(codec: Compression) -> None:
    batch = build_batch(RECORDS, compression=codec)
    size = len(encode_records(RECORDS, 1000))
    assert len(unpack_batches(batch * 3, max_bytes=3 * size)[1]) == 3
    with pytest.raises(DecompressionLimit):
        unpack_batches(batch * 3, max_bytes=3 * size - 1)


def test_unpacking_checks_format_and_checksum() -> None:
    damaged = bytearray(build_batch(RECORDS))
    damaged[-1] ^= 1
    with pytest.raises(CorruptRecords, match="checksum"):
        unpack_batches(damaged, max_bytes=1 << 20)
    assert len(unpack_batches(damaged, max_bytes=1 << 20, check_crc=False)[1]) == 1
    damaged[16] = 1
    with pytest.raises(CorruptRecords, match="format 1"):
        unpack_batches(damaged, max_bytes=1 << 20)


def test_unpacking_refuses_codecs_that_mean_nothing() -> None:
    odd = bytearray(build_batch(RECORDS))
    odd[22] |= 7
    with pytest.raises(ApiError, match="no compression codec 7"):
        unpack_batches(odd, max_bytes=1 << 20, check_crc=False)


def test_a_batch_with_append_time_has_that_time_in_its_span() -> None:
    batch = bytearray(build_batch(RECORDS))
    stamp_log_append_time(batch, 0, read_batch_header(batch), 4242)
    _, (span,) = unpack_batches(batch, max_bytes=1 << 20)
    assert (span.timestamp_ms, span.uses_log_append_time) == (4242, True)


def test_interpreted_source_does_not_count_as_compiled() -> None:
    assert not compiled.is_extension(plain)
    imposter = ModuleType("native")
    imposter.__file__ = "native.cpython-311-x86_64-linux-gnu.so"
    assert compiled.is_extension(imposter)
    assert compiled.is_extension(native) == compiled.IS_COMPILED
    assert (codec_name() == "compiled") == compiled.IS_COMPILED


CHOOSE = """
import sys
{before}
from martlet.wire.records.index import codec_name, index_records, unpack_batches
from martlet.wire.batch import build_batch
data, spans = unpack_batches(build_batch([(0, b"k", b"v", ())] * 100), max_bytes=10**6)
count = index_records(data, spans).record_count
print(codec_name(), count, sys.modules.get("numpy") is not None)
"""
WITHOUT_NATIVE = "sys.modules['martlet.wire.records.native'] = None"


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", "compiled 100 False" if compiled.IS_COMPILED else "numpy 100 True"),
        (WITHOUT_NATIVE, "numpy 100 True"),
        (WITHOUT_NATIVE + "; sys.modules['numpy'] = None", "plain 100 False"),
    ],
    ids=["as installed", "without the compiled module", "without numpy too"],
)
def test_the_fastest_implementation_there_is_gets_chosen(before: str, expected: str) -> None:
    run = subprocess.run(
        [sys.executable, "-c", CHOOSE.format(before=before)],
        capture_output=True,
        check=True,
        text=True,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert run.stdout.strip() == expected

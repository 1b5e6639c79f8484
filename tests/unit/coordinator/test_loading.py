"""What a log's bytes become when a shard is loaded."""

import logging

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.loading import decode_batches
from martlet.coordinator.result import RecordCodec
from martlet.wire.batch import TransactionMarker, build_batch, build_marker_batch
from martlet.wire.compression import Compression
from tests.unit.coordinator.toy_machine import NumberSet, ToyCodec, ToyRecord

CODEC: RecordCodec[ToyRecord] = ToyCodec()


def batch_at(offset: int, *entries: tuple[bytes | None, bytes | None], compression: int = Compression.NONE) -> bytes:
    return build_batch([(0, key, value, ()) for key, value in entries], base_offset=offset, compression=compression)


def test_batches_become_records_in_order() -> None:
    data = batch_at(0, (b"\x01a", b"1"), (b"\x01b", None)) + batch_at(2, (b"\x01c", b"2"), compression=Compression.LZ4)
    records, next_offset = decode_batches("toy-0", data, CODEC, 0)
    assert records == [NumberSet("a", 1), NumberSet("b", None), NumberSet("c", 2)]
    assert next_offset == 3


def test_only_the_last_record_of_a_key_is_decoded_in_its_place() -> None:
    data = batch_at(0, (b"\x01a", b"unreadable"), (b"\x01b", b"1")) + batch_at(2, (b"\x01a", b"2"), (b"\x01b", None))
    assert decode_batches("toy-0", data, CODEC, 0) == ([NumberSet("a", 2), NumberSet("b", None)], 4)


def test_deltas_are_all_decoded() -> None:
    data = batch_at(0, (b"\x01a", b"1"), (b"\x01b", b"1"), (b"\x01a", b"2"))
    records, _ = decode_batches("toy-0", data, CODEC, 1, are_deltas=True)
    assert records == [NumberSet("b", 1), NumberSet("a", 2)]


def test_records_before_the_asked_offset_are_left_out() -> None:
    data = batch_at(0, (b"\x01a", b"1"), (b"\x01b", b"2"))
    assert decode_batches("toy-0", data, CODEC, 1) == ([NumberSet("b", 2)], 2)


def test_control_batches_and_unknown_kinds_are_skipped() -> None:
    marker = build_marker_batch(
        TransactionMarker(True, 0), producer_id=1, producer_epoch=0, timestamp_ms=0, base_offset=1
    )
    data = batch_at(0, (b"\x02future", b"1")) + marker + batch_at(2, (b"\x01a", b"1"))
    assert decode_batches("toy-0", data, CODEC, 0) == ([NumberSet("a", 1)], 3)


def test_a_record_that_cannot_be_read_is_logged_with_its_offset_and_skipped(caplog: pytest.LogCaptureFixture) -> None:
    data = batch_at(7, (b"\x01a", b"one"), (None, b"1"), (b"\x01b", b"2"))
    with caplog.at_level(logging.ERROR):
        records, _ = decode_batches("toy-0", data, CODEC, 0)
    assert records == [NumberSet("b", 2)]
    assert len(caplog.messages) == 2
    assert "offset 7" in "".join(caplog.messages)
    assert "offset 8" in "".join(caplog.messages)


def test_a_damaged_batch_is_refused_and_a_cut_one_left_out() -> None:
    whole = batch_at(0, (b"\x01a", b"1"))
    with pytest.raises(ApiError) as refused:
        decode_batches("toy-0", whole[:-1] + b"X", CODEC, 0)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert decode_batches("toy-0", whole[:-1], CODEC, 0) == ([], -1)

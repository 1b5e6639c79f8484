"""What must hold from batch to batch, and the file that knows about gaps."""

import pytest

from martlet.log.batch_order import COMPACTED, NO_GAPS, BatchOrder, KnownGaps, decode_gaps, encode_gaps
from martlet.wire.batch import BatchHeader, read_batch_header, stamp_batch
from tests.unit.log.log_builders import batch_of


def header(base_offset: int, *, epoch: int = 3, records: int = 2) -> BatchHeader:
    batch = batch_of(*[b"v"] * records)
    stamp_batch(batch, 0, base_offset, epoch)
    return read_batch_header(batch)


def test_a_batch_comes_where_the_one_before_ends() -> None:
    order = BatchOrder(10, epoch=3)
    assert order.fault(header(10)) is None
    order.take(header(10))
    assert order.fault(header(12)) is None
    assert order.fault(header(10)) == "offset 10 comes where 12 was due"
    assert order.fault(header(13)) == "offset 13 comes where 12 was due"


def test_in_a_compacted_log_batches_may_be_missing_but_offsets_never_go_back() -> None:
    order = BatchOrder(10, COMPACTED)
    assert order.fault(header(500)) is None
    assert order.fault(header(9)) is not None


def test_where_messages_were_given_up_exactly_those_are_missing() -> None:
    order = BatchOrder(10, KnownGaps(lost=((10, 15), (15, 20))))
    assert order.fault(header(20)) is None
    assert order.fault(header(10)) is None
    assert order.fault(header(15)) is not None
    assert order.fault(header(21)) is not None


def test_a_batch_stays_below_the_next_segment() -> None:
    order = BatchOrder(10, limit=12)
    assert order.fault(header(10)) is None
    assert order.fault(header(10, records=3)) == "a batch of the offsets 10 to 12 cannot be here"


@pytest.mark.parametrize("epoch", [2, 5, -1])
def test_leader_epochs_neither_go_back_nor_beyond_the_latest(epoch: int) -> None:
    order = BatchOrder(10, epoch=3, epoch_max=4)
    assert order.fault(header(10, epoch=4)) is None
    assert order.fault(header(10, epoch=epoch)) == f"leader epoch {epoch} cannot come at offset 10"


@pytest.mark.parametrize("gaps", [NO_GAPS, COMPACTED, KnownGaps(lost=((3, 9),)), KnownGaps(True, ((3, 9), (20, 21)))])
def test_known_gaps_are_read_as_they_were_written(gaps: KnownGaps) -> None:
    assert decode_gaps(encode_gaps(gaps)) == gaps


def test_of_a_damaged_file_no_gap_is_believed() -> None:
    content = encode_gaps(KnownGaps(True, ((3, 9), (20, 21))))
    for size in range(len(content)):
        assert decode_gaps(content[:size]) == NO_GAPS
    assert decode_gaps(content.replace(b"lost", b"last")) == NO_GAPS

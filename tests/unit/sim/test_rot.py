"""Which batches of a file may rot."""

from sim.rot import batches_before_a_tear

from martlet.wire.batch import build_batch

_BATCH = bytes(build_batch([(0, None, b"value", ())]))


def test_batches_are_found_up_to_the_zeros_that_a_power_loss_leaves() -> None:
    assert list(batches_before_a_tear(_BATCH + _BATCH + bytes(200))) == [(0, len(_BATCH)), (len(_BATCH), len(_BATCH))]

"""A file with damage: what is sound is found again behind it, and what is missing is known exactly."""

from sim.disk import SimDisk

from martlet.log.batch_order import COMPACTED, NO_GAPS, BatchOrder, KnownGaps
from martlet.log.batch_survey import BatchSurvey, Damage
from martlet.wire.batch import stamp_batch
from tests.unit.log.log_builders import batch_of, new_disk

_PATH = "data/0.log"


def batch(base_offset: int, *, epoch: int = 1, records: int = 2) -> bytes:
    made = batch_of(*[b"value %d" % number for number in range(records)])
    stamp_batch(made, 0, base_offset, epoch)
    return bytes(made)


_SIZE = len(batch(0))


def surveyed(
    *parts: bytes, gaps: KnownGaps = NO_GAPS, until: int | None = None
) -> tuple[list[int], list[Damage], BatchSurvey]:
    disk: SimDisk = new_disk()
    file = disk.open(_PATH, create=True)
    file.append(b"".join(parts))
    survey = BatchSurvey(file, 0, file.size(), BatchOrder(0, gaps), until=until)
    offsets = [header.base_offset for _, header in survey]
    return offsets, survey.damage, survey


def places(damage: list[Damage]) -> list[tuple[int, int, int, int]]:
    return [stretch[:4] for stretch in damage]


def test_a_sound_file_has_no_damage() -> None:
    offsets, damage, survey = surveyed(batch(0), batch(2), batch(4), until=6)
    assert (offsets, damage, survey.next_offset) == ([0, 2, 4], [], 6)


def test_zeros_between_batches_cost_the_offsets_they_stand_for() -> None:
    offsets, damage, _ = surveyed(batch(0), bytes(_SIZE), batch(4), batch(6))
    assert offsets == [0, 4, 6]
    assert places(damage) == [(_SIZE, 2 * _SIZE, 2, 4)]


def test_of_two_batches_that_contradict_each_other_the_one_that_fits_nowhere_is_at_fault() -> None:
    offsets, damage, _ = surveyed(batch(0), batch(1_000_002), batch(4), batch(6))
    assert offsets == [0, 4, 6]
    assert places(damage) == [(_SIZE, 2 * _SIZE, 2, 4)]


def test_where_batches_are_cut_out_the_ones_behind_keep_their_offsets() -> None:
    offsets, damage, _ = surveyed(batch(0), batch(6), batch(8))
    assert offsets == [0, 6, 8]
    assert places(damage) == [(_SIZE, _SIZE, 2, 6)]


def test_a_single_batch_behind_a_hole_is_believed_only_if_the_end_agrees() -> None:
    assert surveyed(batch(0), batch(6), until=8)[0] == [0, 6]
    assert surveyed(batch(0), batch(6), until=4)[0] == [0]
    assert surveyed(batch(0), batch(6))[0] == [0]


def test_a_file_that_ends_too_early_lacks_what_is_due() -> None:
    offsets, damage, _ = surveyed(batch(0), until=10)
    assert (offsets, places(damage)) == ([0], [(_SIZE, _SIZE, 2, 10)])
    assert places(surveyed(until=10)[1]) == [(0, 0, 0, 10)]


def test_a_batch_of_a_later_leader_among_earlier_ones_is_at_fault() -> None:
    offsets, damage, _ = surveyed(batch(0), batch(2, epoch=77), batch(4), batch(6))
    assert offsets == [0, 4, 6]
    assert places(damage) == [(_SIZE, 2 * _SIZE, 2, 4)]


def test_the_beginning_of_one_more_batch_is_an_unfinished_write() -> None:
    for cut in (1, 60, 61, _SIZE - 1):
        offsets, _, survey = surveyed(batch(0), batch(2)[:cut])
        assert offsets == [0]
        assert survey.ends_unfinished, cut
    assert not surveyed(batch(0), bytes(_SIZE))[2].ends_unfinished
    assert not surveyed(batch(0), batch(2)[:70], batch(4))[2].ends_unfinished


def test_a_wrong_length_hides_nothing_behind_it() -> None:
    for length in (b"\0\0\0\0", b"\0\0\xff\xff", b"\xff\xff\xff\xff", b"\0\0\0\x63"):
        broken = batch(2)[:8] + length + batch(2)[12:]
        offsets, damage, _ = surveyed(batch(0), broken, batch(4), batch(6))
        assert offsets == [0, 4, 6]
        assert places(damage) == [(_SIZE, 2 * _SIZE, 2, 4)]


def test_what_is_missing_in_a_compacted_log_is_no_damage() -> None:
    offsets, damage, _ = surveyed(batch(0), batch(10), batch(20), gaps=COMPACTED, until=22)
    assert (offsets, damage) == ([0, 10, 20], [])


def test_an_offset_far_ahead_is_noticed_in_a_compacted_log_by_what_follows() -> None:
    offsets, damage, _ = surveyed(batch(0), batch(1_000_000), batch(20), batch(22), gaps=COMPACTED)
    assert offsets == [0, 20, 22]
    assert places(damage) == [(_SIZE, 2 * _SIZE, 2, 20)]


def test_what_an_operator_gave_up_is_no_damage() -> None:
    offsets, damage, _ = surveyed(batch(0), batch(6), gaps=KnownGaps(lost=((2, 6), (8, 12))), until=12)
    assert (offsets, damage) == ([0, 6], [])

"""Priority: the highest first, the adversary that starves a weaker policy, and a column that stays short."""

from martlet.queues.priority import FAIR_EVERY, LEVELS, AgeLadder, PriorityColumn

EVERYTHING = 1 << 60
NOTHING = 0


def test_the_highest_level_goes_first_and_its_oldest_message() -> None:
    column = PriorityColumn(100)
    column.extend(bytes((4, 9, 0, 9, 4)))
    assert column.take(10, NOTHING) == [101, 103, 100, 104, 102]
    assert column.take(1, NOTHING) == []


def test_every_eighth_delivery_goes_to_the_oldest_that_was_overtaken_and_has_waited() -> None:
    column = PriorityColumn(0)
    column.extend(bytes((2, 1)) + bytes([9]) * 30)
    taken = column.take(20, EVERYTHING)
    assert [taken.index(0), taken.index(1)] == [FAIR_EVERY - 1, 2 * FAIR_EVERY - 1]
    column = PriorityColumn(0)
    column.extend(bytes((2, 1)) + bytes([9]) * 30)
    assert 0 not in column.take(20, NOTHING), "what has not waited long is not preferred"


def test_the_adversary_starves_no_message() -> None:
    """Level 9 is absent whenever a fair delivery is due, level 0 is endless: level 4 still comes at the eighth."""
    column = PriorityColumn(0)
    column.extend(bytes((4,)) + bytes((0,)) * 5_000)
    taken: list[int] = []
    while 0 not in taken and len(taken) < 100:
        if len(taken) % FAIR_EVERY != FAIR_EVERY - 1:
            column.extend(bytes((9,)))
        taken += column.take(1, EVERYTHING)
    assert taken.index(0) == FAIR_EVERY - 1


def test_a_message_given_back_keeps_its_place() -> None:
    column = PriorityColumn(0)
    column.extend(bytes((4, 4, 4)))
    assert column.take(2, NOTHING) == [0, 1]
    column.give_back(0)
    assert column.take(2, NOTHING) == [0, 2]


def test_a_message_taken_out_of_turn_is_not_handed_out() -> None:
    column = PriorityColumn(0)
    column.extend(bytes((4, 4, LEVELS, 4)))
    assert column.remove(1)
    assert not column.remove(1)
    assert not column.remove(2)
    assert not column.remove(99)
    assert column.waiting()[4] == len(column) == 2
    assert column.take(5, NOTHING) == [0, 3]


def test_a_long_life_keeps_the_column_short() -> None:
    column = PriorityColumn(0)
    for _ in range(100):
        column.extend(bytes((4,)) * 10_000)
        taken = column.take(10_000, NOTHING)
        column.forget_before(taken[-1] + 1)
    column.extend(bytes((0, 9)))
    assert column.end == 1_000_002
    assert len(column._column) < 200_000
    assert column.take(2, NOTHING) == [1_000_001, 1_000_000]


def test_offsets_age_by_when_they_were_seen() -> None:
    ladder = AgeLadder(5_000, 10)
    for second in range(10):
        ladder.saw(100 * (second + 1), 1_000 * second)
        ladder.saw(100 * (second + 1) + 50, 1_000 * second + 500)
    assert ladder.aged_before(0) == 10
    assert ladder.aged_before(5_000) == 100
    assert ladder.aged_before(7_999) == 300
    assert ladder.aged_before(60_000) == 1_000
    assert ladder.aged_before(60_000) == 1_000

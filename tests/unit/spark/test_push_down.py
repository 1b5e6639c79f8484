"""Push-down: what a filter leaves of a range, and which filters Spark must still check."""

from datetime import UTC, datetime

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from martlet.base.ids import TopicPartition
from martlet.spark.push_down import Narrowing
from martlet.spark.ranges import OffsetRange

WHOLE = OffsetRange(TopicPartition("orders", 2), 10, 20)


def left(*filters: Filter) -> tuple[int, int] | None:
    narrowing = Narrowing()
    for offered in filters:
        assert narrowing.take(offered), f"{offered} is taken whole"
    narrowed = narrowing.applied_to(WHOLE)
    return None if narrowed is None else (narrowed.start, narrowed.end)


@pytest.mark.parametrize(
    ("offered", "expected"),
    [
        (GreaterThan(("offset",), 12), (13, 20)),
        (GreaterThanOrEqual(("offset",), 12), (12, 20)),
        (LessThan(("offset",), 12), (10, 12)),
        (LessThanOrEqual(("offset",), 12), (10, 13)),
        (EqualTo(("offset",), 12), (12, 13)),
        (EqualTo(("offset",), 25), None),
        (EqualTo(("offset",), 0), None),
        (GreaterThan(("offset",), 19), None),
        (EqualTo(("partition",), 2), (10, 20)),
        (EqualTo(("partition",), 1), None),
        (GreaterThan(("partition",), 2), None),
        (LessThanOrEqual(("partition",), 2), (10, 20)),
        (In(("partition",), (1, 2)), (10, 20)),
        (In(("topic",), ("orders", "other")), (10, 20)),
        (EqualTo(("topic",), "other"), None),
        (IsNotNull(("offset",)), (10, 20)),
    ],
)
def test_a_filter_on_places_chooses_ranges_exactly(offered: Filter, expected: tuple[int, int] | None) -> None:
    assert left(offered) == expected


def test_several_filters_narrow_together() -> None:
    assert left(GreaterThanOrEqual(("offset",), 12), LessThan(("offset",), 15), EqualTo(("topic",), "orders")) == (
        12,
        15,
    )
    assert left(EqualTo(("topic",), "orders"), EqualTo(("topic",), "other")) is None


def test_an_instant_moves_the_start_and_is_checked_again_by_spark() -> None:
    narrowing = Narrowing()
    assert not narrowing.take(GreaterThanOrEqual(("timestamp",), datetime(2026, 1, 1, tzinfo=UTC)))
    assert narrowing.not_before_ms == 1_767_225_600_000
    assert not narrowing.take(LessThan(("timestamp",), datetime(2027, 1, 1, tzinfo=UTC)))
    assert narrowing.applied_to(WHOLE) == WHOLE, "no range ends early because of a time"


@pytest.mark.parametrize(
    "offered",
    [
        EqualTo(("value",), b"x"),
        StringStartsWith(("topic",), "ord"),
        IsNotNull(("key",)),
        In(("offset",), (1, 5)),
        Not(EqualTo(("partition",), 2)),
        GreaterThan(("headers", "key"), "x"),
    ],
)
def test_a_filter_that_is_not_understood_is_left_to_spark(offered: Filter) -> None:
    narrowing = Narrowing()
    assert not narrowing.take(offered)
    assert narrowing.applied_to(WHOLE) == WHOLE

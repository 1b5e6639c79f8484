"""Groups are spread over partitions by Java's string hash."""

import pytest

from martlet.broker.coordinators.internal_topic import java_hash, partition_of_key


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", 0),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", 0x8000_0000),
        ("ä", 228),
        ("\U0001f600", 1772899),
    ],
)
def test_the_hash_is_the_one_of_java(text: str, expected: int) -> None:
    assert java_hash(text) == expected


def test_the_smallest_number_has_no_opposite_and_becomes_zero() -> None:
    assert partition_of_key("polygenelubricants", 50) == 0


def test_every_group_has_a_shard() -> None:
    assert {partition_of_key(f"group-{number}", 50) for number in range(1000)} == set(range(50))

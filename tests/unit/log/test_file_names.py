"""File and directory names: only ours are understood, and none leads outside."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.log.file_names import (
    DELETED_DIRECTORY,
    LOG,
    aside_directory,
    offset_file,
    parse_offset_file,
    parse_partition_directory,
    partition_directory,
)


@pytest.mark.parametrize(
    ("topic", "partition"), [("a", 0), ("a-1", 0), ("a.b_c-D", 99), ("x" * 249, 99_999), ("-", 3), ("...", 1)]
)
def test_a_directory_name_leads_back_to_its_partition(topic: str, partition: int) -> None:
    name = partition_directory(TopicPartition(topic, partition))
    assert len(name) <= 255
    assert parse_partition_directory(name) == (topic, partition)


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a/b", "../x", "a\0b", "ä", "a b", "x" * 250, "a\nb", "\uff41", "a\\b", "a-0/../../etc"]
)
def test_hostile_topics_get_no_directory(topic: str) -> None:
    with pytest.raises(ApiError) as caught:
        partition_directory(TopicPartition(topic, 0))
    assert caught.value.code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("partition", [-1, 1_000_000, 1 << 40])
def test_impossible_partition_numbers_get_no_directory(partition: int) -> None:
    with pytest.raises(ApiError):
        partition_directory(TopicPartition("a", partition))


@pytest.mark.parametrize(
    "name",
    ["", "lost+found", "a", "a-", "-0", "a-01", "a--", "a-1x", "a-٣", "..-0", ".-0", "a-99999999", "ä-0", "a-0\n",
     "a/b-0", "a-0.0000-delete", "a-0.0000-stray"],
)  # fmt: skip
def test_foreign_directories_are_left_alone(name: str) -> None:
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize(
    "name", ["", "1.log", "0" * 19 + ".log", "0" * 21 + ".log", "0" * 20, "x" + "0" * 19 + ".log", "٠" * 20 + ".log",
             "0" * 20 + ".LOG", "0" * 20 + "log", "0" * 20 + ".log\n", "leader-epoch-checkpoint"]
)  # fmt: skip
def test_foreign_files_are_left_alone(name: str) -> None:
    assert parse_offset_file(name) is None


def test_offset_files_are_named_by_twenty_digits() -> None:
    assert offset_file(42, LOG) == "00000000000000000042.log"
    assert parse_offset_file("00000000000000000042.log") == (42, ".log")
    assert parse_offset_file("00000000000000000042.timeindex.deleted") == (42, ".timeindex.deleted")


def test_the_name_of_a_deleted_partition_fits_and_is_no_partition() -> None:
    name = aside_directory(TopicPartition("x" * 249, 12345), "00000001", DELETED_DIRECTORY)
    assert len(name) == 255
    assert name.endswith("-12345.00000001-delete")
    assert parse_partition_directory(name) is None

"""Which copies a throttle slows down, and to what rate."""

import pytest

from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.move_throttle import THROTTLED_RATE, is_throttled, name_copies, throttled_rate
from martlet.configs.definition import VALUE_LENGTH_MAX
from martlet.configs.effective import BrokerLayers


@pytest.mark.parametrize(
    ("named", "expected"),
    [("", False), ("*", True), ("0:1", False), ("1:2", False), ("0:2", True), ("1:2, 0:2", True), ("0:22", False)],
)
def test_a_topics_setting_names_copies_by_partition_and_broker(named: str, expected: bool) -> None:
    assert is_throttled(named, 0, BrokerId(2)) == expected


def test_a_brokers_own_rate_wins_over_the_clusters_and_without_any_there_is_no_limit() -> None:
    assert throttled_rate(BrokerLayers()) == 0
    everywhere = {THROTTLED_RATE: "1000"}
    assert throttled_rate(BrokerLayers(dynamic_default=everywhere)) == 1_000
    assert throttled_rate(BrokerLayers(dynamic_broker={THROTTLED_RATE: "7"}, dynamic_default=everywhere)) == 7


def test_copies_are_named_topic_by_topic() -> None:
    copies = [(TopicPartition("t", 1), 3), (TopicPartition("t", 0), 3), (TopicPartition("u", 0), 2)]
    assert name_copies([*copies, copies[0]]) == {"t": "0:3,1:3", "u": "0:2"}


def test_where_copies_are_too_many_to_name_all_of_the_topic_are_meant() -> None:
    named = name_copies((TopicPartition("t", index), 1) for index in range(VALUE_LENGTH_MAX // 4))
    assert named == {"t": "*"}

"""Definitions of topics: what a file may say, and the steps from what there is to what it wants."""

import re
from typing import Any

import pytest

from martlet.client.topic_definitions import TopicDefinition, plan_import, read_definitions

ORDERS = TopicDefinition("orders", 3, 1, {"retention.ms": "5", "cleanup.policy": "delete"})


def test_what_is_written_is_read_back() -> None:
    assert read_definitions({"topics": [ORDERS.to_json()]}) == [ORDERS]
    assert read_definitions({"topics": [{"name": "a", "partitions": 1, "replicas": 1}]}) == [TopicDefinition("a", 1, 1)]


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        ([], 'a definition file is a JSON object with a list of "topics"'),
        ({"topics": 3}, 'a definition file is a JSON object with a list of "topics"'),
        ({"topics": [3]}, 'topic 1 of the file has no "name"'),
        ({"topics": [{"name": "a"}]}, "topic 'a': \"partitions\" is a whole number from 1 up, not None"),
        (
            {"topics": [{"name": "a", "partitions": 1, "replicas": True}]},
            "topic 'a': \"replicas\" is a whole number from 1 up, not True",
        ),
        (
            {"topics": [{"name": "a", "partitions": 1, "replicas": 1, "config": {}}]},
            "topic 'a' has an unknown field 'config'; allowed are name, partitions, replicas, configs",
        ),
        (
            {"topics": [{"name": "a", "partitions": 1, "replicas": 1, "configs": {"retention.ms": 5}}]},
            'topic \'a\': "configs" is an object of strings, like {"retention.ms": "3600000"}',
        ),
        ({"topics": [ORDERS.to_json(), ORDERS.to_json()]}, "topic 'orders' is defined twice"),
    ],
)
def test_a_wrong_file_is_refused_naming_what_is_wrong(document: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        read_definitions(document)


def test_a_topic_that_is_as_wanted_is_left_alone() -> None:
    [change] = plan_import([ORDERS], {"orders": ORDERS, "other": ORDERS})
    assert (change.is_needed, change.describe(), change.obstacles) == (False, [], [])


def test_a_new_topic_is_created_with_its_settings() -> None:
    [change] = plan_import([ORDERS], {})
    assert change.is_new
    assert change.describe() == [
        "+ orders: 3 partitions, 1 replicas",
        "+ orders: cleanup.policy = delete",
        "+ orders: retention.ms = 5",
    ]


def test_settings_that_the_file_does_not_name_go_back_to_their_defaults() -> None:
    present = TopicDefinition("orders", 2, 1, {"retention.ms": "9", "max.message.bytes": "7"})
    [change] = plan_import([ORDERS], {"orders": present})
    assert (change.set_values, change.unset) == (
        {"cleanup.policy": "delete", "retention.ms": "5"},
        ["max.message.bytes"],
    )
    assert change.describe() == [
        "~ orders: partitions 2 -> 3",
        "+ orders: cleanup.policy = delete",
        "~ orders: retention.ms 9 -> 5",
        "- orders: max.message.bytes = 7",
    ]


def test_what_cannot_be_done_is_said() -> None:
    [change] = plan_import([ORDERS], {"orders": TopicDefinition("orders", 4, 3, ORDERS.configs)})
    assert not change.is_needed
    assert [obstacle.split(",")[0] for obstacle in change.obstacles] == [
        "orders has 4 partitions",
        "orders has 3 replicas",
    ]

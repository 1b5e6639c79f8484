"""Which topics a subscription covers, which names it may have, and what is committed for it."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.cluster.records import SubscriptionRecord, decode_record, encode_record
from martlet.cluster.store import Entry
from martlet.cluster.subscriptions import check_subscription, covers, plan_subscription


def test_a_subscription_covers_topics_by_name_and_by_pattern_and_never_internal_ones() -> None:
    record = SubscriptionRecord("s", "id", ("orders",), ("eu.*", "*.dlq"))
    assert [covers(record, name) for name in ("orders", "eu.west", "a.dlq")] == [True] * 3
    assert [covers(record, name) for name in ("orders2", "eux", "a.dlq.b")] == [False] * 3
    everything = SubscriptionRecord("s", "id", patterns=("*",))
    assert covers(everything, "t")
    assert not covers(everything, "__consumer_offsets")
    assert not covers(everything, "__queue_state-AAAAAAAAAAAAAAAAAAAAAA")


@pytest.mark.parametrize(
    ("name", "topics", "patterns", "code"),
    [
        ("", ["t"], [], ErrorCode.INVALID_GROUP_ID),
        ("s" * 250, ["t"], [], ErrorCode.INVALID_GROUP_ID),
        ("s", ["a b"], [], ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("s", ["__consumer_offsets"], [], ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("s", [], ["a[bc]"], ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("s", [], [""], ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
)
def test_what_cannot_be_a_subscription_is_refused(
    name: str, topics: list[str], patterns: list[str], code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as caught:
        check_subscription(name, topics, patterns)
    assert caught.value.code is code


def test_a_subscription_is_stored_changed_and_deleted_by_comparison() -> None:
    record = SubscriptionRecord("a/b", "id", ("t",), settings={"lease.ms": "5"}, created_at_ms=7, is_paused=True)
    made = plan_subscription(None, record)
    assert made is not None
    ((key, value),) = made.puts.items()
    assert made.compares == {key: 0}
    stored = decode_record(SubscriptionRecord, Entry(key, value, 1, 9))
    assert stored == record
    assert plan_subscription(stored, stored) is None
    gone = plan_subscription(stored, None)
    assert gone is not None
    assert (gone.compares, gone.deletes) == ({key: 9}, (key,))
    assert encode_record(stored) == value

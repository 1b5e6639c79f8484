"""Looking at a batch when it is published: what is delayed, and what is refused with its reason."""

import pytest

from martlet.queues.delivery_terms import DeliveryLimits
from martlet.queues.publish_look import Delayed, RefusedTerms, TopicDelivery, look_at_publish, look_at_stored
from martlet.wire.batch import build_batch, read_batch_header

NOW = 1_700_000_000_000
TOPIC = TopicDelivery(frozenset(("delay",)), DeliveryLimits(60_000))
Headers = list[tuple[str, bytes | None]]


def batch(*headers: Headers, compression: int = 0) -> memoryview:
    records = [(NOW - 10, None, b"value", some) for some in headers]
    return memoryview(bytearray(build_batch(records, base_offset=0, compression=compression)))


def looked(*headers: Headers, topic: TopicDelivery = TOPIC, compression: int = 0) -> list[Delayed]:
    raw = batch(*headers, compression=compression)
    return look_at_publish(raw, read_batch_header(raw), topic, NOW)


def test_a_batch_without_headers_of_ours_says_nothing() -> None:
    assert looked([], [("kind", b"order"), ("Martlet-delay-ms", b"x")]) == []


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_the_delayed_messages_are_found_with_their_places(compression: int) -> None:
    found = looked(
        [("a", b"1"), ("martlet-delay-ms", b"500")],
        [("martlet-priority", b"9")],
        [("martlet-deliver-at", b"%d" % (NOW + 7))],
        compression=compression,
    )
    assert found == [Delayed(0, NOW - 10 + 500), Delayed(2, NOW + 7)]


def test_where_the_broker_sets_the_time_a_delay_counts_from_there() -> None:
    topic = TopicDelivery(frozenset(("delay",)), DeliveryLimits(), has_append_time=True)
    assert looked([("martlet-delay-ms", b"500")], topic=topic) == [Delayed(0, NOW + 500)]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("martlet-delay-ms", b"soon", "the header martlet-delay-ms is 'soon': a whole number"),
        ("martlet-delay-ms", b"-5", "the header martlet-delay-ms is '-5'"),
        ("martlet-delay-ms", b"99999999999999999999", "at most 15 digits"),
        ("martlet-delay-ms", b"70000", r"the topic allows 60000 ms \(martlet.delay.max.ms\)"),
        ("martlet-deliver-at", None, "the header martlet-deliver-at is null"),
        ("martlet-priority", b"10", "one digit from 0 to 9"),
    ],
)
def test_nonsense_is_refused_with_header_value_and_what_is_allowed(name: str, value: bytes | None, reason: str) -> None:
    with pytest.raises(RefusedTerms, match=reason) as refused:
        looked([], [(name, value)], [])
    assert [number for number, _ in refused.value.record_errors] == [1]


def test_a_batch_of_the_log_is_read_as_it_is() -> None:
    raw = batch([("martlet-delay-ms", b"soon")], [("martlet-delay-ms", b"70000")])
    assert look_at_stored(raw, read_batch_header(raw), TOPIC) == [Delayed(1, NOW - 10 + 70_000)]

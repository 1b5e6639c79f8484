"""Headers of ours on a topic whose queues look at them: taken, refused with the reason, left alone elsewhere."""

from martlet.base.errors import ErrorCode
from martlet.wire.batch import build_batch
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, now_ms, publish


def batch(*headers: tuple[str, bytes | None] | None) -> bytes:
    return build_batch([(now_ms(), None, b"value", [] if one is None else [one]) for one in headers])


def test_a_topic_without_features_takes_any_header(client: RawClient) -> None:
    topic = create_topic(client)
    assert publish(client, topic, batch(("martlet-delay-ms", b"soon"))).error_code == ErrorCode.NONE


def test_nonsense_is_refused_for_each_message_with_header_value_and_what_is_allowed(client: RawClient) -> None:
    topic = create_topic(client, martlet_queue_features="delay", martlet_delay_max_ms="60000")
    refused = publish(
        client, topic, batch(None, ("martlet-delay-ms", b"soon"), ("martlet-delay-ms", b"3600000"), ("x", None))
    )
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert [one.batch_index for one in refused.record_errors] == [1, 2]
    texts = [one.message or "" for one in refused.record_errors]
    assert "martlet-delay-ms is 'soon'" in texts[0]
    assert "the topic allows 60000 ms (martlet.delay.max.ms)" in texts[1]
    assert publish(client, topic, batch(("martlet-delay-ms", b"50"), None)).base_offset == 0


def test_a_delay_beyond_what_the_log_keeps_is_refused(client: RawClient) -> None:
    topic = create_topic(client, martlet_queue_features="delay", retention_ms="1000000")
    refused = publish(client, topic, batch(("martlet-delay-ms", b"2000000")))
    assert refused.error_code == ErrorCode.INVALID_RECORD
    assert "keeps its messages for 1000000 ms only" in (refused.error_message or "")


def test_a_priority_that_is_none_is_refused_where_any_feature_is_on(client: RawClient) -> None:
    topic = create_topic(client, martlet_queue_features="delay,priority,key-order,expiry,filter")
    assert publish(client, topic, batch(("martlet-priority", b"11"))).error_code == ErrorCode.INVALID_RECORD

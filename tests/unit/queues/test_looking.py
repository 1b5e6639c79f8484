"""Looking inside batches: terms, keys and filters of the messages asked for, whatever else is in the bytes."""

import pytest

from martlet.queues.features import Features, Seen
from martlet.queues.filters import Filter
from martlet.queues.looking import Look, look_inside
from martlet.queues.priority import DEFAULT_LEVEL
from martlet.wire.batch import build_batch

TIME = 1_700_000_000_000
Headers = list[tuple[str, bytes | None]]


def batch(*headers: Headers, base: int = 100, key: bytes | None = b"k", compression: int = 0) -> bytes:
    records = [(TIME + at, key, b"v" * at, some) for at, some in enumerate(headers)]
    return build_batch(records, base_offset=base, compression=compression)


def test_a_message_without_headers_is_plain() -> None:
    assert look_inside(batch([], []), 0, 1_000, Look("t")) == [Seen(100), Seen(101)]


@pytest.mark.parametrize("compression", [0, 1, 2, 3, 4])
def test_terms_are_read_from_the_right_message(compression: int) -> None:
    raw = batch([], [("x", None), ("martlet-priority", b"9")], [("martlet-delay-ms", b"50")], compression=compression)
    assert look_inside(raw, 0, 1_000, Look("t")) == [
        Seen(100),
        Seen(101, priority=9),
        Seen(102, due_ms=TIME + 2 + 50),
    ]


def test_only_the_offsets_that_were_asked_for_are_seen() -> None:
    raw = batch([], [], []) + batch([], base=200)
    assert [seen.offset for seen in look_inside(raw, 101, 200, Look("t"))] == [101, 102]
    assert look_inside(raw, 101, 300, Look("t"), skipped={100}) == [Seen(200)]
    assert look_inside(b"", 0, 10, Look("t")) == []


def test_keys_are_seen_where_order_counts() -> None:
    look = Look.for_features("t", Features(has_key_order=True))
    assert look_inside(batch([]), 0, 999, look)[0].key == b"k"
    assert look_inside(batch([], key=None), 0, 999, look)[0].key is None
    assert look_inside(batch([], key=b""), 0, 999, look)[0].key == b""


def test_a_filter_sees_headers_tags_key_topic_and_size() -> None:
    condition = 'headers.kind == "order" && "vip" in tags && key == "k" && topic == "t" && priority == 4 && size < 1'
    look = Look("t", filter=Filter(condition))
    wanted: Headers = [("kind", b"offer"), ("kind", b"order"), ("martlet-tags", b"new, vip")]
    seen = look_inside(batch(wanted, wanted[:2], [*wanted, ("martlet-priority", b"1")]), 0, 999, look)
    assert [message.is_wanted for message in seen] == [True, False, False]
    assert DEFAULT_LEVEL == 4


def test_bytes_that_are_no_text_do_not_end_the_look() -> None:
    look = Look("t", filter=Filter('has(headers.kind) && key != "x"'))
    (seen,) = look_inside(batch([("kind", b"\xff\xfe"), ("\u00fc", None)], key=b"\xff"), 0, 999, look)
    assert seen.is_wanted


def test_the_subscriptions_own_limit_ends_a_message_unless_its_headers_do_so_sooner() -> None:
    look = Look("t", expire_after_ms=1_000)
    raw = batch([], [("martlet-expire-ms", b"10")], [("martlet-expire-ms", b"90000")])
    assert [seen.expires_ms - TIME for seen in look_inside(raw, 0, 999, look)] == [1_000, 11, 1_002]


def test_headers_that_make_no_sense_were_published_before_the_topic_looked_and_say_nothing() -> None:
    raw = batch([("martlet-priority", b"high"), ("martlet-delay-ms", b"50")])
    assert look_inside(raw, 0, 999, Look("t")) == [Seen(100)]

"""The gateway's JSON: what is left out counts as zero, and what is not etcd's is not believed."""

import json
from base64 import b64decode, b64encode

import pytest

from martlet.cluster.store import Change, Entry, Event
from martlet.stores.etcd_json import TICK_KEY, BadAnswer, KeySpace, as_number, unpack

_KEYS = KeySpace("/m/")


def _b64(value: bytes) -> str:
    return b64encode(value).decode()


def _line(**result: object) -> bytes:
    return json.dumps({"result": result}).encode()


def test_fields_left_out_are_zero_and_empty() -> None:
    assert _KEYS.entries({}) == []
    assert _KEYS.entries({"kvs": [{"key": _b64(b"/m/a")}]}) == [Entry("a", b"", 0, 0)]
    assert as_number(None, "x") == 0
    assert as_number(7, "x") == as_number("7", "x") == 7


def test_events_are_gathered_by_revision_and_sorted_by_key() -> None:
    events = [
        {"kv": {"key": _b64(b"/m/b"), "create_revision": "5", "mod_revision": "5", "value": _b64(b"x")}},
        {"type": "DELETE", "kv": {"key": _b64(b"/m/a"), "mod_revision": "5"}},
        {"kv": {"key": _b64(b"/m/" + TICK_KEY.encode()), "create_revision": "1", "mod_revision": "6"}},
    ]
    answer = _KEYS.watch_answer(_line(events=events))
    assert answer.changes == (
        Change(5, (Event("a", None), Event("b", Entry("b", b"x", 5, 5)))),
        Change(6, ()),
    )


def test_the_tick_lies_outside_every_listing_and_inside_every_watch() -> None:
    tick = json.loads(_KEYS.tick())["key"]
    page = json.loads(_KEYS.read_page("", None, 10, 0))
    watch = json.loads(_KEYS.watch(1))["create_request"]
    assert _raw(page["key"]) <= b"/m/~" < _raw(page["range_end"]) <= _raw(tick)
    assert _raw(watch["key"]) <= _raw(tick) < _raw(watch["range_end"])


def _raw(text: str) -> bytes:
    return b64decode(text)


def test_errors_inside_a_stream_are_read_in_both_of_their_forms() -> None:
    for error in ({"grpc_code": 7, "http_code": 403, "message": "denied"}, {"code": 7, "message": "denied"}):
        answer = _KEYS.watch_answer(json.dumps({"error": error}).encode())
        assert (answer.canceled, answer.reason) == (True, "denied")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]",
        b"{}",
        b'{"result":7}',
        b'{"error":7}',
        b'{"result":{"header":7}}',
        b'{"result":{"events":{}}}',
        b'{"result":{"events":[7]}}',
        b'{"result":{"events":[{}]}}',
        b'{"result":{"events":[{"kv":{"key":"%%"}}]}}',
        b'{"result":{"events":[{"kv":{"key":7}}]}}',
        b'{"result":{"events":[{"kv":{"key":"YQ=="}}]}}',
        b'{"result":{"compact_revision":[]}}',
        b'{"result":{"compact_revision":"x"}}',
    ],
)
def test_a_line_that_is_not_etcds_is_not_believed(line: bytes) -> None:
    with pytest.raises(BadAnswer):
        _KEYS.watch_answer(line)


def test_deep_nesting_is_no_json_of_etcds() -> None:
    with pytest.raises(BadAnswer):
        unpack(b"[" * 100_000)

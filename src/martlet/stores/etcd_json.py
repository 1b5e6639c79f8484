"""The JSON that etcd's gateway speaks: requests as bytes, answers as the port's types. Pure.

The gateway's ways: keys and values are base64, 64-bit numbers are strings, and fields that are zero, false or empty
are left out. All of our keys lie under one root; only this module adds and removes it.

    <root><key>          what the port calls `key`
    <root>\\x7ftick       written to make a watch move; after every visible key, so that no listing holds it

Proved by: tests/unit/stores/test_etcd_json.py, tests/stores/test_etcd_contract.py
"""

import json
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from martlet.base.errors import MartletError
from martlet.cluster.store import Change, Entry, Event, LeaseId, prefix_end

JsonObject = dict[str, Any]

_AFTER_VISIBLE: Final = "\x7f"
TICK_KEY: Final = _AFTER_VISIBLE + "tick"


class BadAnswer(MartletError):
    """An answer is not what etcd says."""


class WatchAnswer(NamedTuple):
    """One message of a watch."""

    header: JsonObject
    created: bool
    canceled: bool
    compact_revision: int
    reason: str
    changes: tuple[Change, ...]


def pack(message: Mapping[str, object]) -> bytes:
    return json.dumps(message, separators=(",", ":")).encode("ascii")


def unpack(body: bytes) -> JsonObject:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadAnswer("the answer is no JSON") from error
    return as_object(message, "the answer")


def as_object(value: object, name: str) -> JsonObject:
    if not isinstance(value, dict):
        raise BadAnswer(f"{name} is no JSON object")
    return value


def as_list(value: object, name: str) -> list[Any]:
    """A list; one that is empty may have been left out."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise BadAnswer(f"{name} is no JSON list")
    return value


def as_number(value: object, name: str) -> int:
    """A 64-bit number, as text or not; zero may have been left out."""
    if value is None:
        return 0
    try:
        return int(value) if isinstance(value, str | int) else int(str(value), 10)
    except ValueError as error:
        raise BadAnswer(f"{name} is no number") from error


class KeySpace:
    """Requests about keys under one root, and the answers to them."""

    __slots__ = ("_root",)

    def __init__(self, root: str) -> None:
        self._root = root

    # --- requests

    def read_key(self, key: str) -> bytes:
        return pack({"key": self._packed(key)})

    def read_page(self, prefix: str, after_key: str | None, limit: int, revision: int) -> bytes:
        """The next keys of a prefix as of a revision; 0 means the present one."""
        begin = prefix if after_key is None else after_key + "\x00"
        return pack(
            {"key": self._packed(begin), "range_end": self._end(prefix), "limit": str(limit), "revision": str(revision)}
        )

    def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str],
        delete_prefixes: Collection[str],
        lease: LeaseId | None,
    ) -> bytes:
        conditions = [
            {"target": "MOD", "result": "EQUAL", "key": self._packed(key), "mod_revision": str(revision)}
            for key, revision in compares.items()
        ]
        changes: list[JsonObject] = [
            {"request_put": {"key": self._packed(key), "value": _text(value), "lease": str(lease or 0)}}
            for key, value in puts.items()
        ]
        changes += [{"request_delete_range": {"key": self._packed(key)}} for key in deletes]
        changes += [
            {"request_delete_range": {"key": self._packed(prefix), "range_end": self._end(prefix)}}
            for prefix in delete_prefixes
        ]
        return pack({"compare": conditions, "success": changes})

    def tick(self) -> bytes:
        return pack({"key": self._packed(TICK_KEY)})

    def watch(self, start_revision: int) -> bytes:
        """Everything under the root, ticks included."""
        end = self._root[:-1] + chr(ord(self._root[-1]) + 1)
        create = {
            "key": self._packed(""),
            "range_end": _text(end.encode("ascii")),
            "start_revision": str(start_revision),
        }
        return pack({"create_request": create})

    # --- answers

    def entries(self, answer: JsonObject) -> list[Entry]:
        return [self._entry(as_object(kv, "an entry")) for kv in as_list(answer.get("kvs"), "kvs")]

    def watch_answer(self, line: bytes) -> WatchAnswer:
        message = unpack(line)
        if "error" in message:
            error = as_object(message["error"], "error")
            return WatchAnswer({}, False, True, 0, str(error.get("message", "no reason given")), ())
        result = as_object(message.get("result"), "result")
        events = (self._event(as_object(event, "an event")) for event in as_list(result.get("events"), "events"))
        return WatchAnswer(
            as_object(result.get("header", {}), "header"),
            result.get("created", False) is True,
            result.get("canceled", False) is True,
            as_number(result.get("compact_revision"), "compact_revision"),
            str(result.get("cancel_reason", "")),
            _by_revision(events),
        )

    def _event(self, event: JsonObject) -> tuple[int, Event]:
        kv = as_object(event.get("kv"), "an event's entry")
        revision = as_number(kv.get("mod_revision"), "mod_revision")
        if event.get("type") in ("DELETE", 1):
            return revision, Event(self._key(kv), None)
        entry = self._entry(kv)
        return revision, Event(entry.key, entry)

    def _entry(self, kv: JsonObject) -> Entry:
        create_revision = as_number(kv.get("create_revision"), "create_revision")
        mod_revision = as_number(kv.get("mod_revision"), "mod_revision")
        return Entry(self._key(kv), _bytes(kv.get("value", "")), create_revision, mod_revision)

    def _key(self, kv: JsonObject) -> str:
        # What other programs put under our root must not stop us here: it reads as a key that is never used.
        key = _bytes(kv.get("key", "")).decode("latin-1")
        if not key.startswith(self._root):
            raise BadAnswer(f"the key {key!r} was not asked for")
        return key.removeprefix(self._root)

    def _packed(self, key: str) -> str:
        return _text((self._root + key).encode("ascii"))

    def _end(self, prefix: str) -> str:
        return self._packed(prefix_end(prefix) or _AFTER_VISIBLE)


def _by_revision(events: Iterable[tuple[int, Event]]) -> tuple[Change, ...]:
    """Whole revisions, each with its events in the order of keys; of a tick nothing is left but its revision."""
    grouped: dict[int, list[Event]] = {}
    for revision, event in events:
        held = grouped.setdefault(revision, [])
        if event.key < _AFTER_VISIBLE:
            held.append(event)
    return tuple(
        Change(revision, tuple(sorted(grouped[revision], key=lambda event: event.key))) for revision in sorted(grouped)
    )


def _text(value: bytes) -> str:
    return b64encode(value).decode("ascii")


def _bytes(value: object) -> bytes:
    try:
        return b64decode(value if isinstance(value, str) else b"\xff", validate=True)
    except (Base64Error, ValueError) as error:
        raise BadAnswer("a key or value is no base64") from error

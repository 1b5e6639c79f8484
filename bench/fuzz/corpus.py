"""Valid requests of every API and version the broker serves, in many variants: what the fuzz run damages.

How it works: the layout of a message (`wire.layout`) says which fields a version has; each is given a value from a
small pool of likely and awkward ones. Produce and Fetch, which have codecs of their own, are made the same way by hand.

Two kinds of topics are named. The stable ones are named by requests that read and write; those that create, delete and
configure name others, which come and go.
"""

import dataclasses
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from martlet.broker.handlers import SERVED
from martlet.wire.api_keys import ApiKey
from martlet.wire.batch import build_batch
from martlet.wire.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
    encode_fetch_request,
)
from martlet.wire.headers import encode_request_frame
from martlet.wire.layout import FieldLayout, StructLayout, message_layout
from martlet.wire.message_codec import encode
from martlet.wire.messages.share_acknowledge import ShareAcknowledgeRequest
from martlet.wire.messages.share_fetch import ShareFetchRequest
from martlet.wire.produce import encode_produce_request

STABLE_TOPICS: Final = ("fuzz-stable", "fuzz-compacted")
PASSING_TOPICS: Final = ("fuzz-a", "fuzz-b", "fuzz-c")

CHANGING: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.DELETE_RECORDS,
        ApiKey.SHARE_GROUP_HEARTBEAT,
        ApiKey.ALTER_SHARE_GROUP_OFFSETS,
        ApiKey.DELETE_SHARE_GROUP_OFFSETS,
    }
)
"""Requests that end in a write to the metadata or a checkpoint: milliseconds each, so there are fewer of them."""

_MESSAGES: Final[Mapping[ApiKey, type[Any]]] = {
    ApiKey.SHARE_FETCH: ShareFetchRequest,
    ApiKey.SHARE_ACKNOWLEDGE: ShareAcknowledgeRequest,
}
"""Of APIs whose handlers read the request by a codec of their own."""
_CHANGING_SHARE: Final = 0.15
_VARIANTS: Final = 24
_FIRST_BY_ID: Final = 13
_INTEGERS: Final = (0, 0, 0, 1, 1, 2, 3, -1, -1, -2, -3, 5, 100, 1000)
_EXTREMES: Final = {"b": 7, "h": 15, "i": 31, "q": 63}
_SETTINGS: Final = ("retention.ms", "cleanup.policy", "segment.bytes", "martlet.flush", "no.such", "")
_VALUES: Final = ("delete", "compact", "86400000", "1048576", "-1", "commit", "never", "nonsense", "")
_GROUP_WORDS: Final = {
    "group_id": ("fuzz-group", "fuzz-group", "fuzz-other", ""),
    "member_id": ("", "", "fuzz-member", "AAAAAAAAAAAAAAAAAAAAAA"),
    "group_instance_id": ("fuzz-instance", ""),
    "protocol_type": ("consumer", "consumer", "connect", ""),
}


class Request(NamedTuple):
    """One valid frame, and where in it its batch lies if it has one."""

    key: ApiKey
    version: int
    frame: bytes
    batch_at: int = -1
    batch_bytes: int = 0


class Corpus:
    """All variants, and how often each API is chosen."""

    def __init__(self, chance: random.Random, topic_ids: Sequence[bytes]) -> None:
        self._chance = chance
        self._topic_ids = topic_ids
        self.requests: list[list[Request]] = []
        self.weights: list[float] = []
        for module in SERVED:
            first, last = module.VERSIONS
            key = ApiKey(module.KEY)
            for version in range(first, last + 1):
                self.requests.append([self._make(key, module, version) for _ in range(_VARIANTS)])
                self.weights.append(_CHANGING_SHARE if key in CHANGING else 1.0)

    @property
    def pairs(self) -> int:
        """How many (API, version) there are."""
        return len(self.requests)

    def _make(self, key: ApiKey, module: Any, version: int) -> Request:
        correlation_id = self._chance.getrandbits(31)
        client_id = self._chance.choice(("fuzz", None, "", "cli\x1bent"))
        if key is ApiKey.PRODUCE:
            chunks = self._produce(version)
        elif key is ApiKey.FETCH:
            chunks = [encode_fetch_request(version, self._fetch(version))]
        else:
            topics = PASSING_TOPICS if key in CHANGING else (*STABLE_TOPICS, *PASSING_TOPICS)
            request = _MESSAGES.get(key) or module.REQUEST
            chunks = [encode(self._fill(message_layout(request, version), topics), version)]
        body = b"".join(chunks)
        frame = encode_request_frame(key, version, correlation_id, client_id, body)
        if key is ApiKey.PRODUCE and len(chunks) > 1:
            return Request(key, version, frame, frame.index(chunks[1]), len(chunks[1]))
        return Request(key, version, frame)

    # --- Produce and Fetch

    def _topic(self, version: int) -> tuple[str | None, bytes | None]:
        if version >= _FIRST_BY_ID:
            return None, self._chance.choice(
                (*self._topic_ids, *self._topic_ids, bytes(16), self._chance.randbytes(16))
            )
        return self._chance.choice((*STABLE_TOPICS, *STABLE_TOPICS, *PASSING_TOPICS, "")), None

    def _batch(self) -> bytes:
        chance = self._chance
        now_ms = 1_790_000_000_000
        records = [
            (
                now_ms + chance.randrange(1000),
                chance.choice((b"key", b"", None)),
                chance.choice((b"value", b"", None, chance.randbytes(20))),
                chance.choice(((), (("h", b"1"),), (("h", None), ("h", b"")))),
            )
            for _ in range(chance.randrange(1, 4))
        ]
        producer = chance.choice(((-1, -1, -1), (chance.randrange(20), 0, chance.randrange(5))))
        return build_batch(
            records,
            compression=chance.randrange(5),
            producer_id=producer[0],
            producer_epoch=producer[1],
            base_sequence=producer[2],
            attributes=chance.choice((0, 0, 0, 0x10, 0x20)),
        )

    def _produce(self, version: int) -> list[bytes]:
        chance = self._chance
        topics = [
            (
                *self._topic(version),
                [(chance.choice((0, 0, 1, 7)), self._batch()) for _ in range(chance.randrange(1, 3))],
            )
            for _ in range(chance.choice((1, 1, 2)))
        ]
        acks = chance.choice((-1, 1, 1, 1, 5))
        transactional_id = "t" if version > 3 and chance.random() < 0.05 else None
        chunks = encode_produce_request(
            version, topics=topics, acks=acks, timeout_ms=1000, transactional_id=transactional_id
        )
        return [bytes(chunk) for chunk in chunks]

    def _fetch(self, version: int) -> FetchRequest:
        chance = self._chance
        topics = [
            FetchTopic(
                *self._topic(version),
                [
                    FetchPartition(
                        chance.choice((0, 0, 1, 7)),
                        current_leader_epoch=chance.choice((-1, -1, 0, 1)),
                        fetch_offset=chance.choice((0, 0, 1, 10, -1, 1 << 40)),
                        last_fetched_epoch=chance.choice((-1, -1, 0, 3)),
                        partition_max_bytes=chance.choice((1, 1000, 1 << 20, -1)),
                    )
                    for _ in range(chance.randrange(3))
                ],
            )
            for _ in range(chance.randrange(3))
        ]
        replica = ReplicaState(chance.choice((-1, -1, -1, -2, 1)))
        return FetchRequest(
            replica_id=replica.replica_id,
            replica_state=replica,
            max_wait_ms=0,
            min_bytes=chance.choice((0, 1, 100)),
            max_bytes=chance.choice((10_000, 1 << 20, 0)),
            isolation_level=chance.randrange(2),
            session_id=chance.choice((0, 0, 5)),
            session_epoch=chance.choice((-1, -1, 0, 1)),
            topics=topics,
            forgotten_topics_data=[ForgottenTopic(*self._topic(version), [0, 1])] if chance.random() < 0.2 else (),
            rack_id=chance.choice(("", "rack")),
        )

    # --- everything else, by its layout

    def _fill(self, layout: StructLayout, topics: Sequence[str]) -> Any:
        fields = [*layout.fields, *(field for _, field in layout.tagged_fields)]
        message_class: Any = layout.message_class
        return message_class(**{field.name: self._value(field, topics) for field in fields if field.is_kept})

    def _value(self, field: FieldLayout, topics: Sequence[str]) -> Any:
        chance = self._chance
        if field.is_nullable and chance.random() < 0.2:
            return None
        if field.is_array:
            element = dataclasses.replace(field, is_array=False, is_nullable=False)
            return [self._value(element, topics) for _ in range(chance.choice((0, 1, 1, 2)))]
        if field.struct is not None:
            return self._fill(field.struct, topics)
        if field.kind == "string":
            return self._string(field.name, topics)
        if field.kind == "bytes":
            return chance.choice((b"", bytes(20), chance.randbytes(30)))
        if field.format == "?":
            return chance.random() < 0.5
        if field.format == "16s":
            return chance.choice((*self._topic_ids, bytes(16), chance.randbytes(16)))
        return self._integer(field)

    def _string(self, name: str, topics: Sequence[str]) -> str:
        chance = self._chance
        if name == "value":
            return chance.choice(_VALUES)
        if name in _GROUP_WORDS:
            return chance.choice(_GROUP_WORDS[name])
        if "software" in name:
            return chance.choice(("fuzz", "1.0", "not a word"))
        return chance.choice((*topics, *topics, *_SETTINGS, "1", "../..", "é\n"))

    def _integer(self, field: FieldLayout) -> int:
        chance = self._chance
        if field.name == "resource_type":
            return chance.choice((2, 2, 4, 8))
        if field.name == "session_timeout_ms":
            return chance.choice((6_000, 6_000, 0, 1 << 30))
        if chance.random() < 0.05 and field.format in _EXTREMES:
            bits = _EXTREMES[field.format]
            return chance.choice(((1 << bits) - 1, -(1 << bits)))
        return chance.choice(_INTEGERS) if field.format != "b" else chance.choice((0, 1, 2, -1))

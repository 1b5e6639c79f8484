"""The messages that every client publishes and reads, and where the broker put them."""

import random
import time
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KEYS = 50
STEP_MS = 10


class Message(NamedTuple):
    """What a program hands to a client."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int


class Place(NamedTuple):
    """Where the broker said it put a message."""

    partition: int
    offset: int


class ClientAdapter(Protocol):
    """The few things the tests do with a client, each through the client's own public interface."""

    name: str

    def create_topic(self, servers: str, topic: str, partitions: int) -> None: ...

    def publish(
        self,
        servers: str,
        topic: str,
        messages: Sequence[Message],
        *,
        compression: str = "none",
        idempotent: bool = False,
    ) -> list[Place]:
        """Publish all, in order; returns where each went once all are acknowledged."""
        ...

    def read(self, servers: str, topic: str, starts: dict[int, int]) -> dict[Place, Message]:
        """Everything from these offsets on, to the partitions' ends; offsets of a partition must come ascending."""
        ...

    def offsets_for_time(
        self, servers: str, topic: str, partitions: Iterable[int], timestamp_ms: int
    ) -> dict[int, int | None]:
        """For each partition the first offset not before that time; None where there is none."""
        ...


def make_messages(count: int, *, keyed: bool, seed: int = 1) -> list[Message]:
    """Messages of many shapes: empty and large, binary, with and without headers, with a key or all without."""
    chance = random.Random(seed)
    first_ms = time.time_ns() // 1_000_000 - 3_600_000
    return [_make(chance, number, keyed, first_ms + STEP_MS * number) for number in range(count)]


def _make(chance: random.Random, number: int, keyed: bool, timestamp_ms: int) -> Message:
    key = b"key %d" % chance.randrange(KEYS) if keyed else None
    value: bytes | None = b"%d " % number + b"text that repeats " * chance.randrange(12) + chance.randbytes(number % 23)
    if number % 100 == 7:
        value = b""
    elif number % 100 == 9 and keyed:
        value = None
    headers: tuple[tuple[str, bytes], ...] = ()
    if number % 3 == 0:
        headers = (("number", b"%d" % number), ("bytes", chance.randbytes(5)), ("number", b"again"), ("empty", b""))
    return Message(key, value, headers, timestamp_ms)


def check_places(messages: Sequence[Message], places: Sequence[Place], partitions: int) -> None:
    """Offsets rise with the order of publishing in each partition, without gaps; one key, one partition."""
    assert len(places) == len(messages)
    following = dict.fromkeys(range(partitions), 0)
    homes: dict[bytes, int] = {}
    for message, place in zip(messages, places, strict=True):
        assert place.offset == following[place.partition]
        following[place.partition] += 1
        if message.key is not None:
            assert homes.setdefault(message.key, place.partition) == place.partition


def expect_offsets(
    messages: Sequence[Message], places: Sequence[Place], partitions: int, timestamp_ms: int
) -> dict[int, int | None]:
    """What a search by time must find."""
    found: dict[int, int | None] = dict.fromkeys(range(partitions))
    for message, place in zip(messages, places, strict=True):
        if message.timestamp_ms >= timestamp_ms and found[place.partition] is None:
            found[place.partition] = place.offset
    return found


def ends_of(places: Sequence[Place], partitions: int) -> dict[int, int]:
    """The end offset of every partition."""
    ends = dict.fromkeys(range(partitions), 0)
    for place in places:
        ends[place.partition] = max(ends[place.partition], place.offset + 1)
    return ends

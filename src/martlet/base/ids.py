"""Nominal types for the numbers and names of the domain, so that two of them cannot be swapped by accident.

Only identity lives here: no state, no behaviour beyond sorting names, parsing and printing a topic id.
"""

import base64
import re
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType

BrokerId = NewType("BrokerId", int)
Offset = NewType("Offset", int)
LeaderEpoch = NewType("LeaderEpoch", int)
PartitionIndex = NewType("PartitionIndex", int)
ProducerId = NewType("ProducerId", int)
ProducerEpoch = NewType("ProducerEpoch", int)
Incarnation = NewType("Incarnation", int)
TopicId = NewType("TopicId", bytes)
"""The sixteen bytes of a topic's UUID; bytes, because that is how it travels and hashes fastest."""

_TOPIC_ID_TEXT: Final = re.compile(r"[A-Za-z0-9_-]{22}")

NO_TOPIC_ID: Final = TopicId(bytes(16))
NO_BROKER: Final = BrokerId(-1)
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_OFFSET: Final = Offset(-1)

TRANSACTION_GROUP_PREFIX: Final = "txg:"
"""How the transactional ids of groups of transactions begin, and those of their children."""


class Member(NamedTuple):
    """A broker process in a partition's in-sync or eligible set: not just which broker, but which start of it."""

    broker: BrokerId
    incarnation: Incarnation


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' numbers by their topics, both in order."""
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def format_topic_id(topic_id: bytes) -> str:
    """The 22 characters in which Kafka's tools print a topic id (URL-safe base64 without padding)."""
    return base64.urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def parse_topic_id(text: str) -> TopicId:
    """The inverse of `format_topic_id`; raises ValueError on anything else."""
    if not _TOPIC_ID_TEXT.fullmatch(text):
        raise ValueError(f"not a topic id: {text!r}")
    return TopicId(base64.urlsafe_b64decode(text + "=="))

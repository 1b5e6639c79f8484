"""Which topic names are allowed, and which belong to Martlet itself.

Names come from clients and become directory names, so nothing but the listed characters passes.
"""

import re
from hashlib import blake2b
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId, format_topic_id, parse_topic_id

TOPIC_NAME_LENGTH_MAX: Final = 249
"""With "-" and a partition number behind it, the longest name still fits a file name of 255 bytes."""

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
QUEUE_STATE_TOPIC: Final = "__queue_state"
"""Reserved; what is made is a companion of each queue topic, see `queue_state_topic`."""
QUEUE_STATE_PREFIX: Final = f"{QUEUE_STATE_TOPIC}-"

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, QUEUE_STATE_TOPIC})

_ALLOWED = re.compile(r"[a-zA-Z0-9._-]+")
_SHOWN_LENGTH_MAX: Final = 60


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION, naming the rule that is broken."""
    problem = _problem(name)
    if problem:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def is_internal_topic(name: str) -> bool:
    """Whether Martlet itself makes and owns this topic."""
    return name in INTERNAL_TOPICS or name.startswith(QUEUE_STATE_PREFIX)


def looks_internal(name: str) -> bool:
    """Whether a name is one of Martlet's own, or collides with one, made or not."""
    folded = name.replace(".", "_")
    return folded in INTERNAL_TOPICS or folded.startswith(QUEUE_STATE_PREFIX)


def queue_state_topic(topic_id: TopicId) -> str:
    """The companion of a topic that has queues: their state lies in it, partition by partition.

    Named by the topic's id, so that a topic made again under its name inherits nothing.
    """
    return QUEUE_STATE_PREFIX + format_topic_id(topic_id)


def companion_id(topic_id: TopicId) -> TopicId:
    """The id of that companion: its topic's alone, so whichever broker makes it makes the same."""
    return TopicId(blake2b(topic_id, digest_size=16, person=b"martlet-queues").digest())


def topic_of_queue_state(name: str) -> TopicId | None:
    """The inverse: whose companion this is, if it is one."""
    if not name.startswith(QUEUE_STATE_PREFIX):
        return None
    try:
        return parse_topic_id(name.removeprefix(QUEUE_STATE_PREFIX))
    except ValueError:
        return None


def _problem(name: str) -> str | None:
    if not name:
        return "a topic name has at least one character"
    if name in (".", ".."):
        return f'a topic cannot be named "{name}"'
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"a topic name has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}"
    if not _ALLOWED.fullmatch(name):
        shown = ascii(name[:_SHOWN_LENGTH_MAX])
        return f'a topic name holds only ASCII letters, digits, ".", "_" and "-", not {shown}'
    return None

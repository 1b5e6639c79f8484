"""Which topic names are allowed, and which belong to Martlet itself.

Names come from clients and become directory names, so nothing but the listed characters passes.
"""

import re
from typing import Final

from martlet.base.errors import ApiError, ErrorCode

TOPIC_NAME_LENGTH_MAX: Final = 249
"""With "-" and a partition number behind it, the longest name still fits a file name of 255 bytes."""

CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
QUEUE_STATE_TOPIC: Final = "__queue_state"

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
    return name in INTERNAL_TOPICS


def looks_internal(name: str) -> bool:
    """Whether a name is one of Martlet's own, or collides with one, made or not."""
    return name.replace(".", "_") in INTERNAL_TOPICS


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

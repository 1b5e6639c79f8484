"""Which topics a subscription covers, and what to commit when one is made, changed or deleted.

Rules: pure. What the settings of a subscription mean and which are allowed is not known here.

Proved by: tests/unit/cluster/test_subscriptions.py
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import subscription_key
from martlet.cluster.records import SubscriptionRecord, encode_record
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_names import check_topic_name, is_internal_topic

NAME_LENGTH_MAX: Final = 249
_PATTERN = re.compile(r"[a-zA-Z0-9._*-]+")


@lru_cache(maxsize=1024)
def _matcher(pattern: str) -> "re.Pattern[str]":
    return re.compile(".*".join(map(re.escape, pattern.split("*"))))


def covers(subscription: SubscriptionRecord, topic: str) -> bool:
    """Whether the messages of this topic belong to the subscription."""
    if is_internal_topic(topic):
        return False
    return topic in subscription.topics or any(_matcher(one).fullmatch(topic) for one in subscription.patterns)


def covering(image: MetadataImage, topic: str) -> Iterator[SubscriptionRecord]:
    """The subscriptions that a topic has."""
    return (record for record in image.subscriptions().values() if covers(record, topic))


def check_subscription(name: str, topics: Iterable[str], patterns: Iterable[str]) -> None:
    """ApiError for what cannot be the name or the topics of a subscription."""
    if not name or len(name) > NAME_LENGTH_MAX:
        detail = f"the name of a subscription has 1 to {NAME_LENGTH_MAX} characters, not {len(name)}"
        raise ApiError(ErrorCode.INVALID_GROUP_ID, detail)
    for topic in topics:
        check_topic_name(topic)
        if is_internal_topic(topic):
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic} is internal and has no subscriptions")
    for pattern in patterns:
        if not _PATTERN.fullmatch(pattern):
            detail = f'a pattern of topics is a name in which "*" stands for any characters, not {pattern[:60]!a}'
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, detail)


def plan_subscription(stored: SubscriptionRecord | None, changed: SubscriptionRecord | None) -> CommitPlan | None:
    """Have `changed` in place of what is stored; None when that is so."""
    record = changed or stored
    if record is None or stored == changed:
        return None
    key = subscription_key(record.name)
    compares = {key: stored.mod_revision if stored is not None else 0}
    return (
        CommitPlan(compares, deletes=(key,)) if changed is None else CommitPlan(compares, {key: encode_record(changed)})
    )

"""The sentences about messages that are gone: what happened, how much, and what to do. Pure."""

from collections.abc import Iterable

from martlet.base.ids import TopicPartition

_WAYS_OUT = "start anew with a new checkpoint location, or set failOnDataLoss to false to go on without what is gone"


def messages_gone(partition: TopicPartition, start: int, end: int, held: range) -> str:
    """Of `start` to before `end`, something is not in what the partition holds (any more)."""
    if start > held.stop:
        return (
            f"{partition} was to be read from offset {start}, but ends at {held.stop}: it was cut, or the topic was "
            f"made anew; {_WAYS_OUT}"
        )
    count = min(end, held.start) - start
    return (
        f"{count} messages of {partition} are gone: offsets {start} to {min(end, held.start) - 1} were to be read, but "
        f"it begins at {held.start} (retention or a deletion ran ahead); raise the topic's retention.ms, and "
        f"{_WAYS_OUT}"
    )


def topics_gone(topics: Iterable[str]) -> str:
    """Topics that were being read are not there any more."""
    names = ", ".join(repr(topic) for topic in sorted(topics))
    return f"topic {names} was being read and is not there any more, or no longer subscribed to; {_WAYS_OUT}"


def topics_made_anew(topics: Iterable[str]) -> str:
    """Topics that were being read have been deleted, and others have their names."""
    names = ", ".join(repr(topic) for topic in sorted(topics))
    return (
        f"topic {names} was deleted and made anew since the last micro-batch, so its messages are others; "
        f"{_WAYS_OUT} (the new topic is then read from its start)"
    )

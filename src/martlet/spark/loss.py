"""The sentences about messages that are gone: what happened, how much, and what to do. Pure."""

from collections.abc import Iterable

from martlet.base.ids import TopicPartition
from martlet.spark.stream_offsets import StreamOffsets

_WAYS_OUT = "start again with a new checkpoint location, or set failOnDataLoss to false to go on without what is gone"


def messages_gone(partition: TopicPartition, start: int, end: int, held: range) -> str:
    """Of `start` to before `end`, something is not in what the partition holds (any more)."""
    if start > held.stop:
        return (
            f"{partition} was to be read from offset {start}, but ends at {held.stop}: it was truncated, or the topic "
            f"was recreated; {_WAYS_OUT}"
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


def partitions_gone(partitions: Iterable[TopicPartition]) -> str:
    """Partitions that were being read are not there any more, though their topic is."""
    names = ", ".join(str(partition) for partition in sorted(partitions))
    return f"{names} was being read and is not there any more, or no longer assigned; {_WAYS_OUT}"


def topics_recreated(topics: Iterable[str]) -> str:
    """Topics that were being read have been deleted, and others have their names."""
    names = ", ".join(repr(topic) for topic in sorted(topics))
    return (
        f"topic {names} was deleted and recreated since the last micro-batch, so its messages are others; "
        f"{_WAYS_OUT} (the new topic is then read from its start)"
    )


def losses_since(start: StreamOffsets, latest: StreamOffsets) -> list[str]:
    """What a stream that stands at `start` has lost, by where its partitions end now; no sentence, no loss."""
    losses = losses_within(start, latest)
    lost = start.recreated_in(latest)
    unseen = [
        partition
        for partition in start.positions
        if partition not in latest.positions and partition.topic in latest.topics and partition.topic not in lost
    ]
    if unseen:
        losses.append(partitions_gone(unseen))
    for partition, position in start.positions.items():
        end = latest.positions.get(partition)
        if end is not None and partition.topic not in lost and position > end:
            losses.append(messages_gone(partition, position, position, range(end)))
    return losses


def losses_within(known: StreamOffsets, there: StreamOffsets) -> list[str]:
    """Which topics of those known are gone, or others under the same names."""
    gone, recreated = known.topics - there.topics, known.recreated_in(there)
    losses = [topics_gone(gone)] if gone else []
    return [*losses, topics_recreated(recreated)] if recreated else losses

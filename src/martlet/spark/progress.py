"""Lag, out of what Spark reports about a query. Pure.

A source's progress names how far the last micro-batch went and where the logs end; both as JSON text.
"""

import json
from typing import Protocol

from martlet.base.ids import TopicPartition
from martlet.spark.stream_offsets import StreamOffsets


class ReportedSource(Protocol):
    """What is used of one entry of `StreamingQueryProgress.sources`."""

    @property
    def endOffset(self) -> str | None: ...

    @property
    def latestOffset(self) -> str | None: ...


def lag_between(end: str | None, latest: str | None) -> dict[TopicPartition, int]:
    """Messages not yet processed, by partition; nothing when Spark does not say, or speaks of another source."""
    processed, newest = _offsets(end), _offsets(latest)
    if processed is None or newest is None:
        return {}
    recreated = processed.recreated_in(newest)
    return {
        partition: max(0, offset - (0 if partition.topic in recreated else processed.positions.get(partition, 0)))
        for partition, offset in newest.positions.items()
    }


def source_lag(source: ReportedSource) -> int | None:
    """Messages not yet processed, in all partitions; None when Spark does not say."""
    lags = lag_between(source.endOffset, source.latestOffset)
    return sum(lags.values()) if lags else None


def _offsets(text: str | None) -> StreamOffsets | None:
    if not text:
        return None
    try:
        parsed = json.loads(text)
        if isinstance(parsed, str):
            # Some versions wrap the JSON into a JSON string.
            parsed = json.loads(parsed)
        return StreamOffsets.from_json(parsed)
    except (ValueError, TypeError, AttributeError):
        return None

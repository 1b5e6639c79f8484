"""What Spark reports about its queries, kept by query: the last batch in numbers, and the rows of all together.

Spark calls the listener in a thread of its own, once for each batch and now and then while idle. What it says is put
into a new record and replaces the old one, so readers need no lock. The last thing it says about a query is its end.

Proved by: tests/unit/spark/test_progress_history.py.
"""

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from martlet.base.ids import TopicPartition


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """One query so far."""

    batch: int | None = None
    rows: int = 0
    input_rows_per_second: float | None = None
    processed_rows_per_second: float | None = None
    batch_ms: int | None = None
    state_rows: int | None = None
    state_bytes: int | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where each partition that it reads will be read next."""

    def after(self, report: Mapping[str, Any]) -> "QueryProgress":
        """With one more report of Spark's, as JSON has it."""
        rows = report["numInputRows"]
        positions = positions_of(report["sources"])
        if not rows and self.batch is not None:
            # Idle, or a batch that only tidied state: the figures of the last real one say more.
            return replace(self, positions=positions or self.positions)
        operators = report["stateOperators"]
        return QueryProgress(
            batch=report["batchId"],
            rows=self.rows + rows,
            input_rows_per_second=report.get("inputRowsPerSecond"),
            processed_rows_per_second=report.get("processedRowsPerSecond"),
            batch_ms=report["durationMs"].get("triggerExecution"),
            state_rows=sum(each["numRowsTotal"] for each in operators) if operators else None,
            state_bytes=sum(each["memoryUsedBytes"] for each in operators) if operators else None,
            positions=positions or self.positions,
        )


def positions_of(sources: Sequence[Mapping[str, Any]]) -> dict[TopicPartition, int]:
    """The end offsets of a query's topics; sources of other kinds are passed over."""
    positions: dict[TopicPartition, int] = {}
    for source in sources:
        offsets = source.get("endOffset")
        if isinstance(offsets, str):
            try:
                offsets = json.loads(offsets)
            except ValueError:
                continue
        if not isinstance(offsets, dict):
            continue
        for topic, partitions in offsets.items():
            if isinstance(partitions, dict):
                numbers = {name: at for name, at in partitions.items() if name.isdigit() and isinstance(at, int)}
                positions |= {TopicPartition(topic, int(name)): at for name, at in numbers.items()}
    return positions


class ProgressHistory(StreamingQueryListener):
    """Listens to all queries of a session."""

    def __init__(self) -> None:
        self._queries: dict[str, QueryProgress] = {}
        self._ends: dict[str, threading.Event] = {}

    def of(self, query: str) -> QueryProgress:
        """What is known of the query of this name."""
        return self._queries.get(query, QueryProgress())

    def wait_for_end(self, run_id: str, seconds: float) -> None:
        """Until all has been reported about a query that has ended."""
        self._end_of(run_id).wait(seconds)

    def _end_of(self, run_id: str) -> threading.Event:
        return self._ends.setdefault(run_id, threading.Event())

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing to note."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        report = json.loads(event.progress.json)
        name = report["name"]
        self._queries[name] = self.of(name).after(report)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing to note."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        self._end_of(str(event.runId)).set()

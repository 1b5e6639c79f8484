"""Spark's reports turned into figures."""

import json
from typing import Any

from martlet.base.ids import TopicPartition
from martlet.spark.pipelines.progress_history import QueryProgress, positions_of


def report(batch: int, rows: int, offset: int, **more: Any) -> dict[str, Any]:
    end = {"orders": {"0": offset, "1": 7, "topicId": "x"}}
    return {
        "batchId": batch,
        "numInputRows": rows,
        "inputRowsPerSecond": 10.0,
        "processedRowsPerSecond": 20.0,
        "durationMs": {"triggerExecution": 300, "addBatch": 200},
        "stateOperators": [],
        "sources": [{"description": "martlet", "endOffset": end}],
    } | more


def test_rows_add_up_over_batches_and_the_rest_is_of_the_last_one() -> None:
    operators = [{"numRowsTotal": 5, "memoryUsedBytes": 100}, {"numRowsTotal": 2, "memoryUsedBytes": 10}]
    progress = QueryProgress().after(report(0, 40, 5)).after(report(1, 2, 6, stateOperators=operators))
    assert (progress.batch, progress.rows, progress.batch_ms) == (1, 42, 300)
    assert (progress.state_rows, progress.state_bytes) == (7, 110)
    assert progress.positions == {TopicPartition("orders", 0): 6, TopicPartition("orders", 1): 7}


def test_an_idle_report_leaves_the_figures_of_the_last_batch() -> None:
    busy = QueryProgress().after(report(0, 40, 5))
    assert busy.after(report(1, 0, 5, durationMs={}, processedRowsPerSecond=0.0)) == busy


def test_positions_come_as_text_or_as_objects_and_other_sources_are_passed_over() -> None:
    text = json.dumps({"orders": {"3": 9}})
    sources: list[dict[str, Any]] = [
        {"endOffset": text},
        {"endOffset": {"logOffset": 4}},
        {"endOffset": None},
        {"endOffset": "7"},
        {},
    ]
    assert positions_of(sources) == {TopicPartition("orders", 3): 9}

"""A pipeline killed in the middle of a batch and started again: the archive holds each message once.

Two kills here, of the driver and of Spark's JVM; `python -m bench.spark.pipeline_kills` does it thirty times, to all
victims, for both layouts and for a topic.
"""

from pathlib import Path

import pytest
from bench.spark.pipeline_kills import run_kills


@pytest.mark.timeout(400)
def test_an_archive_holds_each_message_once_after_kill_nine_in_the_middle_of_batches(tmp_path: Path) -> None:
    verdict = run_kills(tmp_path, "parquet", kills=2, seed=4, victims=("driver", "jvm"))
    assert (verdict.missing, verdict.repeated) == (0, 0)
    assert verdict.messages > 100

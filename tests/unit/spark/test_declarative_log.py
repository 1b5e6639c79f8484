"""What is reported of a declarative run that failed: the line of its log that names an error."""

from pathlib import Path

import pytest

from martlet.spark.pipelines.declarative import last_error


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["pyspark.errors.AnalysisException: no such table", "[main] INFO done [3 ms]"], "no such table"),
        (["26/11/17 WARN x", "[TABLE_OR_VIEW_NOT_FOUND] The table a is not there", "at [0]"], "The table a is not"),
        (["[1/2] step", "it ended"], "it ended"),
        ([], "no output"),
    ],
)
def test_the_last_line_that_names_an_error_is_reported(tmp_path: Path, lines: list[str], sentence: str) -> None:
    log = tmp_path / "spark.log"
    log.write_text("\n".join(lines), "utf-8")
    assert sentence in last_error(log)

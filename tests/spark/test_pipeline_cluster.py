"""A pipeline by its command line on executors elsewhere, whose Python has nothing but what is sent to them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from martlet.spark.pipelines.shipping import FOLDER
from martlet.testing.running_broker import RunningBroker
from tests.spark.topics import Topics

FLOW = """
from pyspark.sql.functions import udf
from martlet.spark.pipelines import flow

@udf("string")
def place(_value):
    import martlet
    return martlet.__file__

@flow(reads="{source}", writes="{target}")
def where(messages):
    return messages.withColumn("value", place("value"))
"""


@pytest.mark.timeout(400)
def test_executors_elsewhere_get_the_packages_with_the_pipeline(
    broker: RunningBroker, topics: Topics, tmp_path: Path
) -> None:
    source, target = topics.new(partitions=2), topics.new()
    topics.fill(source, 20, partitions=2)
    (tmp_path / "where.py").write_text(FLOW.format(source=source, target=target), "utf-8")
    bare_python = os.path.realpath(sys.executable)
    memory = ["--conf", "spark.driver.memory=512m", "--conf", "spark.executor.memory=700m"]
    options = ["--until-end", "--master", "local-cluster[2,1,700]", *memory]
    ran = subprocess.run(
        [sys.executable, "-c", "from martlet.cli.main import main; main()", "pipeline", "run", "where.py", *options],
        cwd=tmp_path,
        env=os.environ | {"MARTLET_BOOTSTRAP": broker.bootstrap_servers, "PYSPARK_PYTHON": bare_python},
        capture_output=True,
        text=True,
        timeout=380,
    )
    assert ran.returncode == 0, ran.stderr
    places = [(value or b"").decode() for value in topics.values(target)]
    assert len(places) == 20
    assert all(f"/{FOLDER}/martlet/__init__.py" in place for place in places)

"""Sessions whose workers would run a Python without Martlet: refused in one sentence that says what to set."""

import os
import subprocess
import sys

import pytest

STARTED_BY_US = """
from martlet.spark.session import start_session
start_session("first")
"""
A_SESSION_OF_ONES_OWN = """
from pyspark.sql import SparkSession
from martlet.spark.session import register

spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
register(spark)
"""


@pytest.mark.parametrize("script", [STARTED_BY_US, A_SESSION_OF_ONES_OWN])
def test_a_python_without_martlet_is_refused_in_a_sentence_with_what_to_set(script: str) -> None:
    bare = os.path.realpath(sys.executable)
    ran = subprocess.run(
        [sys.executable, "-c", script], env=os.environ | {"PYSPARK_PYTHON": bare}, capture_output=True, text=True
    )
    last = ran.stderr.splitlines()[-1]
    assert f"Spark would run its workers with {bare}, which does not have what is needed" in last
    assert last.endswith(f"set PYSPARK_PYTHON={sys.executable} before the session is made")

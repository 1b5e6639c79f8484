"""An archive of Spark's classes as a JVM has loaded them: the dozens of JVMs of these tests start in half the time.

`python -m tests.spark.class_archive` makes it, once for a Java and a Spark, by running a little of everything;
`./dev test` calls it. `java_options` are what tests give to every JVM: the archive where there is one, and what suits
short lives. They reach every process by JDK_JAVA_OPTIONS, those of clusters and of the command line too. All works
without an archive, or with one of another Java, only slower.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

VARIABLE: Final = "JDK_JAVA_OPTIONS"
_FOLDER: Final = Path(__file__).parents[2] / "build"
_SHORT_LIVED: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SILENT: Final = ("-Xlog:disable", "-Xlog:all=error:stderr")
_WORK: Final = """
import sys
from pyspark.sql import SparkSession

spark = (
    SparkSession.builder.master("local[2]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.sql.shuffle.partitions", "2")
    .config("spark.log.level", "ERROR")
    .getOrCreate()
)
numbers = spark.range(100).selectExpr("id", "id % 7 AS kind", "string(id) AS text")
numbers.groupBy("kind").count().orderBy("kind").collect()
numbers.write.parquet(sys.argv[1] + "/table")
numbers.mapInArrow(lambda batches: batches, numbers.schema).collect()
stream = spark.readStream.schema(numbers.schema).parquet(sys.argv[1] + "/table")
stream.groupBy("kind").count().writeStream.format("memory").queryName("counts").outputMode("complete").option(
    "checkpointLocation", sys.argv[1] + "/checkpoint"
).trigger(availableNow=True).start().awaitTermination()
java = spark.sparkContext._gateway.proc
spark.stop()
java.stdin.close()
java.wait()
"""


def java_options() -> str:
    """For JDK_JAVA_OPTIONS."""
    archive = _archive()
    shared = (f"-XX:SharedArchiveFile={archive}", *_SILENT) if archive.exists() else ()
    return " ".join((*_SHORT_LIVED, *shared))


def make() -> None:
    """Make the archive, unless it is there."""
    archive = _archive()
    if archive.exists():
        return
    print("Spark's classes are archived, so that its tests start faster; half a minute, once ...", file=sys.stderr)
    archive.parent.mkdir(parents=True, exist_ok=True)
    draft = archive.with_suffix(f".{os.getpid()}")
    options = " ".join((*_SHORT_LIVED, f"-XX:ArchiveClassesAtExit={draft}", *_SILENT))
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run(
            [sys.executable, "-c", _WORK, folder],
            env=os.environ | {VARIABLE: options, "PYSPARK_PYTHON": sys.executable},
            capture_output=True,
            text=True,
            timeout=600,
        )
    if ran.returncode or not draft.exists():
        print(f"The archive could not be made; all works without it.\n{ran.stderr[-1000:]}", file=sys.stderr)
        return
    draft.replace(archive)


def _archive() -> Path:
    """Named after what it fits: this Java, and this installation of Spark."""
    import pyspark

    java = subprocess.run(["java", "-version"], capture_output=True, check=True).stderr
    what = java + f"{pyspark.__version__} {Path(pyspark.__file__).parent}".encode()
    return _FOLDER / f"spark-classes-{hashlib.sha256(what).hexdigest()[:12]}.jsa"


if __name__ == "__main__":
    make()

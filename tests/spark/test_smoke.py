"""Smoke: throw-away."""

import time
from tests.spark.topics import Message


def test_it_reads_and_writes(spark, broker, topics, checkpoint):
    name = topics.new(2)
    topics.fill(name, 1000, partitions=2)
    t = time.time()
    df = (
        spark.read.format("martlet")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", name)
        .option("includeHeaders", True)
        .load()
    )
    df.printSchema()
    rows = df.collect()
    print("read", len(rows), time.time() - t, rows[:2])
    t = time.time()
    rows = df.collect()
    print("read", len(rows), time.time() - t)
    out = topics.new(2)
    t = time.time()
    q = (
        spark.readStream.format("martlet")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", name)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 300)
        .option("group", "g")
        .load()
        .selectExpr("key", "value")
        .writeStream.format("martlet")
        .option("bootstrap", broker.bootstrap_servers)
        .option("topic", out)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    q.awaitTermination()
    print("stream", time.time() - t)
    for p in q.recentProgress:
        print(
            p.batchId,
            p.numInputRows,
            p.sources[0].json if hasattr(p.sources[0], "json") else p.sources[0],
            p.durationMs,
        )
    assert sorted(topics.values(out)) == sorted(topics.values(name))
    print(topics.group_lag("g"))
    1 / 0

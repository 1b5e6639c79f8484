"""Martlet for PySpark: the data source "martlet" (read and write topics, batch and streaming), and ready pipelines.

    session.py          a Spark session with the settings that suit the source; registration
    source.py           the data source as Spark sees it; every method there says in which process it runs
    read_options.py     what `.option(…)` may say when reading; write_options.py when writing; option_names.py the names
    subscription.py     which topics and partitions are read
    positions.py        where reading begins and ends: earliest, latest, offsets, instants
    stream_offsets.py   how far a stream has come, as Spark keeps it in its checkpoint
    admission.py        how much of what is there goes into the next micro-batch
    ranges.py           offset ranges: one per task, large ones split
    push_down.py        filters that narrow offset ranges
    planning.py         all of the above against a live cluster: the driver's half of reading
    batch_reader.py, stream_reader.py   Spark's two readers
    range_reading.py, arrow_from_records.py the tasks' half: fetch a range, decode it into Arrow
    writers.py, publishing.py, records_from_arrow.py   Spark's two writers: Arrow into the producer
    blocking.py         an event loop for code that is not asyncio
    progress.py         lag, out of what Spark reports about a query

Nothing is imported here, so that naming one of these costs only that one. Where things run: Spark asks the *planner*,
a Python process next to the driver, for offsets and ranges; *tasks* run in Python workers on the executors. They share
nothing but pickled options and ranges, so readers and writers hold plain values and connect when they are used.
"""

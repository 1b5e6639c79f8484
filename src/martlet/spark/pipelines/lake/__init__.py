"""Tables in files that a pipeline appends to exactly once: Parquet with a log of our own, or Delta.

A batch of rows is written in two steps, whatever the layout: tasks write Parquet files that no reader sees yet, then
one driver commits the batch under the name of its writer and its number. A batch that has been committed is never
committed again, so a batch that Spark repeats after a crash changes nothing.
"""

"""Partitions on disk: segments, indexes, recovery, retention, compaction, producer state and leader epochs.

Synchronous, over the disk port. What may block (syncing, compacting, reading cold data) is handed out as an object
whose one blocking call the broker makes in a worker thread; everything else runs on the event loop's thread.
"""

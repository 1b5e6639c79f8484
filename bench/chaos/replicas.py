"""Looks into the logs of all replicas, in the brokers' own files: are they the same, and what stands at an offset.

Batches are stored as the leader wrote them, so when nothing is published any more, the files of all replicas of a
partition, one after the other, must be the same bytes, and some: a log that is not found is not the same as another
that is not found. Where segments begin may differ.

Proved by: tests/cluster/test_chaos_parts.py
"""

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.cluster.running_cluster import RunningCluster

from martlet.wire.batch import iterate_batches

_SECONDS_MAX: Final = 15.0


def differences(cluster: RunningCluster, topic: str, partitions: int) -> list[str]:
    """One sentence for each partition whose replicas differ still after a while; followers may need a moment."""
    deadline = time.monotonic() + _SECONDS_MAX
    while True:
        known = cluster.metadata(topic).topics[topic].partitions
        found = []
        for index in range(partitions):
            name = f"{topic}-{index}"
            text = difference(name, {number: cluster.brokers[number].log_of(name) for number in known[index].replicas})
            found += [text] if text else []
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def difference(partition: str, logs: Mapping[int, Path]) -> str | None:
    """What is wrong with the replicas of one partition, whose files are in these directories; None when nothing is."""
    contents = {number: _content(log) for number, log in logs.items()}
    if len(set(contents.values())) == 1 and all(size for size, _ in contents.values()):
        return None
    found = ", ".join(f"broker {number}: {size:,} bytes ({digest[:8]})" for number, (size, digest) in contents.items())
    return f"the replicas of {partition} differ: {found}"


def _content(directory: Path) -> tuple[int, str]:
    """How many bytes the log has, and what they are."""
    size, digest = 0, hashlib.blake2b()
    for file in sorted(directory.glob("*.log")):
        data = file.read_bytes()
        size += len(data)
        digest.update(data)
    return size, digest.hexdigest()


def batches_at(cluster: RunningCluster, partition: str, offset: int) -> list[str]:
    """What each replica has at this offset: who wrote the batch, when, and under which leader."""
    found = []
    for number, broker in cluster.brokers.items():
        for file in sorted(broker.log_of(partition).glob("*.log")):
            found += [
                f"broker {number}: {partition} {header.base_offset}..{header.last_offset}, producer "
                f"{header.producer_id} epoch {header.producer_epoch} sequence {header.base_sequence}, "
                f"leader epoch {header.partition_leader_epoch}, made at {header.base_timestamp}"
                for _, header in iterate_batches(file.read_bytes())
                if header.base_offset <= offset <= header.last_offset
            ]
    return found

"""The names of options: Spark's Kafka source's where it has them, so that code moves by changing the format.

Rules: names only; what values mean is for `read_options` and `write_options`. Spark hands over names in lower case,
and compares without regard to case; errors show them as people write them.

An option is one of five things: ours (taken), a Kafka client setting that we follow (taken under `kafka.`), one that
only tunes Spark's own connector or its client (let pass, nothing to tune here), one that would change what is read or
written in a way we do not offer (refused, with what to do instead), or unknown (refused, with the nearest name).
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

READING: Final = (
    "assign",
    "bootstrap",
    "columns",
    "endingOffsets",
    "endingOffsetsByTimestamp",
    "endingTimestamp",
    "failOnDataLoss",
    "fetchBytes",
    "group",
    "includeHeaders",
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.client.rack",
    "kafka.default.api.timeout.ms",
    "kafka.group.id",
    "kafka.isolation.level",
    "kafka.max.partition.fetch.bytes",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
    "maxOffsetsPerTrigger",
    "maxRecordsPerPartition",
    "maxTriggerDelay",
    "minOffsetsPerTrigger",
    "minPartitions",
    "pauseFile",
    "pushdown",
    "startingOffsets",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "startingTimestamp",
    "subscribe",
    "subscribePattern",
)
WRITING: Final = (
    "bootstrap",
    "compression",
    "createTopics",
    "exactlyOnce",
    "includeHeaders",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.bootstrap.servers",
    "kafka.client.id",
    "kafka.compression.type",
    "kafka.delivery.timeout.ms",
    "kafka.enable.idempotence",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
    "keepTimestamp",
    "topic",
)

GIVEN_BY_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
"""Spark adds these to what the user said."""

NOTHING_TO_TUNE: Final = frozenset(
    {
        "fetchoffset.numretries",
        "fetchoffset.retryintervalms",
        "groupidprefix",
        "kafkaconsumer.polltimeoutms",
    }
    | {
        f"kafka.{name}"
        for name in (
            "allow.auto.create.topics",
            "auto.include.jmx.reporter",
            "buffer.memory",
            "check.crcs",
            "client.dns.lookup",
            "client.rack",
            "connections.max.idle.ms",
            "fetch.max.bytes",
            "fetch.max.wait.ms",
            "fetch.min.bytes",
            "heartbeat.interval.ms",
            "linger.ms",
            "max.block.ms",
            "max.in.flight.requests.per.connection",
            "max.poll.interval.ms",
            "max.poll.records",
            "max.request.size",
            "metadata.max.age.ms",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
            "receive.buffer.bytes",
            "reconnect.backoff.max.ms",
            "reconnect.backoff.ms",
            "retries",
            "retry.backoff.max.ms",
            "retry.backoff.ms",
            "send.buffer.bytes",
            "session.timeout.ms",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        )
    }
)

_REFUSED_READING: Final = {
    "kafka.auto.offset.reset": "say where to begin with startingOffsets",
    "kafka.enable.auto.commit": "progress is committed to the group named by the option group",
    "kafka.interceptor.classes": "there are no interceptors",
    "kafka.key.deserializer": "keys are bytes; turn them into other types with DataFrame functions",
    "kafka.value.deserializer": "values are bytes; turn them into other types with DataFrame functions",
    "path": "name topics with subscribe, subscribePattern or assign, and call load() without a path",
    "topic": "topic is for writing; name what to read with subscribe",
}
_REFUSED_WRITING: Final = {
    "kafka.interceptor.classes": "there are no interceptors",
    "kafka.key.serializer": "keys are strings or bytes; make them so with DataFrame functions",
    "kafka.partitioner.class": "give the frame a column partition to choose partitions yourself",
    "kafka.transactional.id": "transactions are not offered yet; the sink publishes at least once",
    "kafka.value.serializer": "values are strings or bytes; make them so with DataFrame functions",
    "path": "name the topic with the option topic, or in a column topic, and call save() without a path",
    "subscribe": "subscribe is for reading; name the topic to write with the option topic",
}
_SECURITY: Final = ("kafka.sasl.", "kafka.ssl.")


def refusal_in_reading(name: str) -> str | None:
    """Why this option cannot be taken when reading; None if it can, or may pass."""
    return _refusal(name, READING, _REFUSED_READING, "reading")


def refusal_in_writing(name: str) -> str | None:
    """Why this option cannot be taken when writing; None if it can, or may pass."""
    return _refusal(name, WRITING, _REFUSED_WRITING, "writing")


def _refusal(name: str, taken: Iterable[str], refused: dict[str, str], doing: str) -> str | None:
    lower = name.lower()
    by_lower = {known.lower(): known for known in taken}
    if lower in by_lower or lower in GIVEN_BY_SPARK or lower in NOTHING_TO_TUNE:
        return None
    if lower.startswith(_SECURITY):
        return f"the option {name} asks for authentication or TLS, which Martlet does not offer yet; leave it out"
    if lower in refused:
        return f"the option {name} cannot be used here: {refused[lower]}"
    near = get_close_matches(lower, by_lower, n=1, cutoff=0.6) or get_close_matches(f"kafka.{lower}", by_lower, n=1)
    hint = f"did you mean {by_lower[near[0]]}? " if near else ""
    return f"there is no option {name} for {doing}; {hint}The options are: {', '.join(by_lower.values())}"

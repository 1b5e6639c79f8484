"""Everything that can be said when writing, as values; parsed in the driver, sent to tasks.

Rules: parsing and checking only. Names are in `option_names`.

Proved by: tests/unit/spark/test_write_options.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from martlet.spark.connection_options import ConnectionOptions
from martlet.spark.failures import OptionRefused
from martlet.spark.option_names import refusal_in_writing
from martlet.spark.option_values import OptionValues
from martlet.wire.compression import Compression

_CODECS: Final = {codec.name.lower(): codec for codec in Compression}
_BATCH_BYTES: Final = 524_288
_DELIVERY_TIMEOUT_MS: Final = 120_000


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """How a batch or a stream is written."""

    connection: ConnectionOptions
    topic: str | None
    compression: Compression
    keep_timestamp: bool
    create_topics: bool
    batch_bytes: int
    delivery_timeout_ms: int


def parse_write_options(given: Mapping[str, str]) -> WriteOptions:
    """All options of a writer; raises OptionRefused with what is wrong and what would be right."""
    options = OptionValues(given, refusal_in_writing)
    options.check_security()
    if options.yes_or_no("exactlyOnce", False):
        raise OptionRefused(
            "exactlyOnce is not offered yet: the sink publishes at least once, so a task or micro-batch that runs "
            "again publishes its rows again; leave the option out and make readers ignore repeats, or write to a table"
        )
    if options.choice("kafka.acks", ("all", "-1", "0", "1"), "all") not in ("all", "-1"):
        raise OptionRefused("kafka.acks other than all would lose messages when a broker fails; leave it out")
    if not options.yes_or_no("kafka.enable.idempotence", True):
        raise OptionRefused("kafka.enable.idempotence cannot be switched off: publishing is always idempotent")
    codec = options.one_of("compression", "kafka.compression.type") or "none"
    if codec.lower() not in _CODECS:
        raise OptionRefused(f"compression is one of {', '.join(_CODECS)}, not {codec!r}")
    delivery_timeout_ms = options.number("kafka.delivery.timeout.ms") or _DELIVERY_TIMEOUT_MS
    return WriteOptions(
        connection=ConnectionOptions(
            bootstrap=options.bootstrap(),
            client_id=options.text("kafka.client.id") or "martlet-spark",
            request_timeout_ms=options.number("kafka.request.timeout.ms") or 30_000,
            retry_timeout_ms=delivery_timeout_ms,
        ),
        topic=options.text("topic") or None,
        compression=_CODECS[codec.lower()],
        keep_timestamp=options.yes_or_no("keepTimestamp", False),
        create_topics=options.yes_or_no("createTopics", True),
        batch_bytes=options.number("kafka.batch.size") or _BATCH_BYTES,
        delivery_timeout_ms=delivery_timeout_ms,
    )

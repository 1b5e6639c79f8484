"""Everything that can be said when reading, as values; parsed in the driver, sent to planner and tasks.

Rules: parsing and checking only. Names are in `option_names`.

Proved by: tests/unit/spark/test_read_options.py
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from martlet.client.offsets import EARLIEST, LATEST
from martlet.spark.connection_options import ConnectionOptions
from martlet.spark.failures import OptionRefused
from martlet.spark.option_names import refusal_in_reading
from martlet.spark.option_values import OptionValues
from martlet.spark.positions import Position, parse_end, parse_start
from martlet.spark.record_schema import ALWAYS, HEADERS, known_columns
from martlet.spark.subscription import Subscription, parse_subscription

_ONLY_IN_BATCH: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp", "pushdown")
_TRIGGER_DELAY_MS: Final = 900_000
_FETCH_BYTES: Final = 1_048_576


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """How a batch or a stream is read."""

    connection: ConnectionOptions
    subscription: Subscription
    start: Position
    end: Position
    columns: tuple[str, ...]
    fail_on_data_loss: bool
    read_committed: bool
    fetch_bytes: int
    pieces_min: int | None
    piece_max: int | None
    pushdown: bool = False
    group: str | None = None
    max_offsets: int | None = None
    min_offsets: int | None = None
    trigger_delay_ms_max: int = _TRIGGER_DELAY_MS
    rack: str = ""
    """Where tasks run: they may be sent to a replica in the same rack."""
    pause_file: str | None = None
    """While there is such a file at the driver, a stream goes no further."""


def parse_read_options(given: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """All options of a reader; raises OptionRefused with what is wrong and what would be right."""
    options = OptionValues(given, refusal_in_reading)
    options.check_security()
    if streaming:
        for name in _ONLY_IN_BATCH:
            if options.text(name) is not None:
                raise OptionRefused(f"{name} is for batch reads; a stream has no end and takes no filters")
    max_offsets = options.number("maxOffsetsPerTrigger")
    min_offsets = options.number("minOffsetsPerTrigger")
    if max_offsets is not None and min_offsets is not None and min_offsets > max_offsets:
        raise OptionRefused(f"minOffsetsPerTrigger {min_offsets} is more than maxOffsetsPerTrigger {max_offsets}")
    isolation = options.choice("kafka.isolation.level", ("read_uncommitted", "read_committed"), "read_uncommitted")
    fetch_bytes = options.number("fetchBytes") or options.number("kafka.max.partition.fetch.bytes") or _FETCH_BYTES
    return ReadOptions(
        connection=ConnectionOptions(
            bootstrap=options.bootstrap(),
            client_id=options.text("kafka.client.id") or "martlet-spark",
            request_timeout_ms=options.number("kafka.request.timeout.ms") or 30_000,
            retry_timeout_ms=options.number("kafka.default.api.timeout.ms") or 60_000,
        ),
        subscription=parse_subscription(options),
        start=parse_start(options, default=LATEST if streaming else EARLIEST),
        end=parse_end(options),
        columns=_columns(options),
        fail_on_data_loss=options.yes_or_no("failOnDataLoss", True),
        read_committed=isolation == "read_committed",
        fetch_bytes=fetch_bytes,
        pieces_min=options.number("minPartitions"),
        piece_max=options.number("maxRecordsPerPartition"),
        pushdown=options.yes_or_no("pushdown", False),
        group=options.one_of("group", "kafka.group.id") or None,
        max_offsets=max_offsets,
        min_offsets=min_offsets,
        trigger_delay_ms_max=options.duration_ms("maxTriggerDelay", _TRIGGER_DELAY_MS),
        rack=options.text("kafka.client.rack") or "",
        pause_file=options.text("pauseFile"),
    )


def _columns(options: OptionValues) -> tuple[str, ...]:
    """All columns, with headers when asked for; or those that were named, in that order."""
    headers = options.yes_or_no("includeHeaders", False)
    named = options.text("columns")
    if named is None:
        return (*ALWAYS, HEADERS) if headers else ALWAYS
    known = {column.lower(): column for column in known_columns()}
    chosen = []
    for name in [part.strip() for part in named.split(",") if part.strip()]:
        if name.lower() not in known:
            raise OptionRefused(f"columns: there is no column {name!r}; a message has {', '.join(known.values())}")
        chosen.append(known[name.lower()])
    if not chosen:
        raise OptionRefused(f"columns names none; a message has {', '.join(known.values())}")
    if headers and HEADERS not in chosen:
        chosen.append(HEADERS)
    return tuple(dict.fromkeys(chosen))

"""The ready pipelines: their names, what each is for, and its options. The command line is made from this table.

Rules: no Spark here, so that help answers at once. An option's type says how it is written: a `tuple` may be repeated,
a `bool` is a switch, an option without a default must be given.
"""

import dataclasses
import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

    from martlet.spark.pipelines.flows import PipelineRun


def option(
    explanation: str, default: Any = dataclasses.MISSING, *, choices: tuple[str, ...] = (), is_read: bool = False
) -> Any:
    """A field of an options class, with what `--help` says about it; `is_read` for topics that must be there."""
    return dataclasses.field(default=default, metadata={"help": explanation, "choices": choices, "is_read": is_read})


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveOptions:
    topic: str = option("Topic to archive; several separated by commas.", is_read=True)
    to: str = option("Directory of the archive.")
    layout: str = option("How the archive is kept.", "parquet", choices=("parquet", "delta"))
    compact_files: int = option("Merge the small files of a day once there are N; 0 never does.", 16)
    compact_bytes: int = option("The size merged files should have.", 134_217_728)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    archive: str = option("Directory of the archive.")
    to: str = option("Topic to publish to.")
    topic: str = option("Only messages that came from this topic.", "")
    since: str = option("Only messages from this time on, like 2026-11-01T08:00Z.", "")
    until: str = option("Only messages before this time.", "")
    where: str = option("Only messages for which this SQL expression is true.", "")
    keep_partitions: bool = option("Publish to the partition a message came from, instead of by its key.", False)
    keep_time: bool = option("Keep the time of a message instead of giving it that of its replay.", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityOptions:
    topic: str = option("Topic with JSON objects to check.", is_read=True)
    to: str = option("Topic for those that pass.")
    quarantine: str = option("Topic for those that do not.  [default: the topic's name and -quarantine]", "")
    columns: str = option("Fields and their types: 'id long not null, amount double'.", "")
    rule: tuple[str, ...] = option("NAME=EXPRESSION that must be true of the fields. May be repeated.", ())


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsOptions:
    topic: str = option("Topic to measure; several separated by commas.", is_read=True)
    to: str = option("Topic for the measurements.", "martlet-metrics")
    table: str = option("Also a lake table in this directory.", "")
    window_seconds: int = option("Length of a window.", 60)
    late_seconds: int = option("How late a message may come and still be counted.", 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class CdcOptions:
    topic: str = option("Topic with change events, keyed by row.", is_read=True)
    to: str = option("Directory of the table.")
    layout: str = option("How the table is kept.", "parquet", choices=("parquet", "delta"))
    columns: str = option("Fields of a row and their types: 'id long, name string'.")
    buckets: int = option("Parts of the table by key; a batch rewrites those it touches.", 8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorOptions:
    topic: str = option("Topic to mirror; several separated by commas.", is_read=True)
    to_bootstrap: str = option("A broker of the other cluster.")
    prefix: str = option("Put this before the names of the topics there.", "")
    keep_partitions: bool = option("Publish to the partition with the same number.", False)


@dataclass(frozen=True, slots=True, kw_only=True)
class DedupeOptions:
    topic: str = option("Topic with repeats.", is_read=True)
    to: str = option("Topic without.")
    by: str = option("What makes two messages the same: key, value, or a field of a JSON value ($.id).", "value")
    within_seconds: int = option("How long a message is remembered.", 600)


@dataclass(frozen=True, slots=True, kw_only=True)
class FraudOptions:
    topic: str = option("Topic with payments.", "payments", is_read=True)
    to: str = option("Topic for alerts.", "fraud-alerts")
    velocity_payments: int = option("Alert at N payments of a card …", 5)
    velocity_seconds: int = option("… within this many seconds.", 60)
    amount_max: float = option("Alert at a payment above this.", 5_000.0)
    amount_factor: float = option("Alert at a payment of N times the card's usual one.", 8.0)


class ReadyPipeline(NamedTuple):
    """One line of the catalogue."""

    name: str
    summary: str
    options: type[Any]
    every_seconds: float = 0.0
    """How often a batch starts by default; 0 is: as soon as there is something to do."""

    def check(self, options: Any) -> None:
        """Raise MartletError for options that can be seen to be wrong without a session."""
        check = getattr(importlib.import_module(f"martlet.spark.pipelines.{self.name}"), "check", None)
        if check is not None:
            check(options)

    def topics_read(self, options: Any) -> tuple[str, ...]:
        """The topics that must be there."""
        fields = (each for each in dataclasses.fields(options) if each.metadata["is_read"])
        return tuple(name.strip() for each in fields for name in getattr(options, each.name).split(","))

    @property
    def start(self) -> "Callable[[PipelineRun, Any], None]":
        """Its code; this imports Spark."""
        module = importlib.import_module(f"martlet.spark.pipelines.{self.name}")
        start: Callable[[PipelineRun, Any], None] = module.start
        return start


READY: Final = {
    pipeline.name: pipeline
    for pipeline in (
        ReadyPipeline("archive", "Topics into a lake table by date, each message once.", ArchiveOptions, 30.0),
        ReadyPipeline("replay", "Messages of an archive back into a topic.", ReplayOptions),
        ReadyPipeline("quality", "Check JSON messages; those that fail go to quarantine with reasons.", QualityOptions),
        ReadyPipeline("metrics", "Throughput, latency and age per topic and group, by window.", MetricsOptions, 5.0),
        ReadyPipeline("cdc", "Change events merged into a table: the last state of every key.", CdcOptions, 10.0),
        ReadyPipeline("mirror", "Topics of one cluster into another.", MirrorOptions),
        ReadyPipeline("dedupe", "A topic without its repeats.", DedupeOptions),
        ReadyPipeline("fraud", "Alerts about payments that look like fraud.", FraudOptions),
    )
}

r"""`martlet consume`: print the messages of a topic.

Follows new messages when standard output is a terminal and stops at the end when it is not: a person watches, a program
wants an answer that ends. `--follow` and `--exit-at-end` say otherwise. The end is where the topic ended when the
command started, so a busy topic does not keep it running.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.cli.message_format import Message, Printer, compile_format, json_line
from martlet.cli.options import START, TOPIC, Target, connects
from martlet.cli.output import format_count, is_terminal, print_note
from martlet.cli.session import run_with_cluster
from martlet.cli.start_position import Start, resolve_start

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.fetched import Fetched

_DEFAULT_FORMAT: Final = "%s\\n"
_BATCH_BYTES_MAX: Final = 268_435_456


@dataclass(frozen=True, slots=True)
class _Job:
    """What to read and how to print it."""

    topic: str
    start: Start
    partitions: Sequence[int]
    count: int | None
    follow: bool
    printer: Printer
    out: BinaryIO


class FormatType(click.ParamType[Printer]):
    """A format in kcat's letters."""

    name = "FORMAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Printer:
        try:
            return compile_format(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.option(
    "--from",
    "start",
    type=START,
    default="earliest",
    show_default=True,
    help="earliest, latest, -N (the last N of each partition), @TIME, or an offset.",
)
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@click.option(
    "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this partition. May be repeated."
)
@click.option(
    "--follow/--exit-at-end",
    default=None,
    help="Wait for new messages, or stop at the end.  [default: follow on a terminal, else stop]",
)
@click.option("--format", "printer", type=FormatType(), help="What to print of each message; see below.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as a line of JSON.")
@connects
def consume(
    topic: str,
    start: Start,
    count: int | None,
    partitions: Sequence[int],
    follow: bool | None,
    printer: Printer | None,
    as_json: bool,
    target: Target,
) -> None:
    """Print the messages of a topic.

    Reads without leaving a trace: no group, no commit, nothing changes for other readers.

    \b
    TIME:    @2026-11-01T08:00, @1793520000000 (ms since 1970), @-15m (s m h d ago)
    FORMAT:  %t topic  %p partition  %o offset  %T timestamp in ms
             %k key  %s value  %h headers  %K %S lengths  %% percent  \\n \\t \\xHH
             [default: '%s\\n']
    """
    if printer is not None and as_json:
        raise click.UsageError("give --format or --json, not both")
    if follow is None:
        follow = is_terminal(sys.stdout)
    job = _Job(
        topic=topic,
        start=start,
        partitions=partitions,
        count=count,
        follow=follow,
        printer=json_line if as_json else printer or compile_format(_DEFAULT_FORMAT),
        out=sys.stdout.buffer,
    )
    run_with_cluster(target, lambda cluster: _consume(cluster, job))


async def _consume(cluster: "Cluster", job: _Job) -> None:
    from martlet.client.fetcher import Fetcher, FetcherOptions, OutOfRange

    positions, held = await resolve_start(cluster, job.start, await _partitions(cluster, job))
    # A partition may lose its oldest messages while we read; going on with what is left is what a reader wants.
    options = FetcherOptions(read_committed=True, out_of_range=OutOfRange.EARLIEST)
    async with Fetcher(cluster, options) as fetcher:
        fetcher.assign({p: position for p, position in positions.items() if job.follow or position < held[p].stop})
        printed = 0
        try:
            while fetcher.positions and (job.count is None or printed < job.count):
                for fetched in await fetcher.fetch():
                    printed += _print(fetched, job, held[fetched.partition].stop, printed)
                job.out.flush()
                if not job.follow:
                    fetcher.unassign([p for p, position in fetcher.positions.items() if position >= held[p].stop])
        finally:
            if is_terminal(sys.stderr):
                print_note(f"{format_count(printed, 'message')} read")


async def _partitions(cluster: "Cluster", job: _Job) -> list[TopicPartition]:
    info = await cluster.topic(job.topic)
    for partition in job.partitions:
        if partition not in info.partitions:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"topic {job.topic!r} has no partition {partition}; it has {len(info.partitions)}, numbered from 0",
            )
    return [TopicPartition(job.topic, index) for index in job.partitions or info.partitions]


def _print(fetched: "Fetched", job: _Job, end: int, printed_before: int) -> int:
    """Print what is wanted of one answer; returns how many that were."""
    printed = 0
    for record in fetched.records(batch_bytes_max=_BATCH_BYTES_MAX):
        if not job.follow and record.offset >= end:
            break
        if job.count is not None and printed_before + printed >= job.count:
            break
        job.out.write(job.printer(Message(fetched.partition, *record)))
        printed += 1
    return printed

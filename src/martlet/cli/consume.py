"""`martlet consume`: print the messages of topics.

Follows new messages when standard output is a terminal and stops at the end when it is not: a person watches, a program
wants an answer that ends. `--follow` and `--exit-at-end` say otherwise. The end is where the topics ended when the
command started, so a busy topic does not keep it running.
"""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.message_format import Printer, compile_format, json_line
from martlet.cli.message_writer import MessageWriter
from martlet.cli.options import END, GROUP, START, TOPIC, Target, connects
from martlet.cli.output import format_count, is_terminal, print_note
from martlet.cli.session import run_with_cluster
from martlet.cli.start_position import Start, StartKind, resolve_end, resolve_start

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.metadata import TopicInfo

_DEFAULT_FORMAT: Final = "%s\\n"


@dataclass(frozen=True, slots=True)
class _Job:
    """What to read without a group."""

    topics: Sequence[str]
    pattern: re.Pattern[str] | None
    start: Start
    until: Start
    partitions: Sequence[int]
    follow: bool


class FormatType(click.ParamType[Printer]):
    """A format in kcat's letters."""

    name = "FORMAT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Printer:
        try:
            return compile_format(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class PatternType(click.ParamType[str]):
    """A regular expression over the whole name of a topic."""

    name = "REGEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        try:
            re.compile(str(value))
        except re.error as error:
            self.fail(f"{value!r} is not a regular expression: {error}", param, ctx)
        return str(value)


@click.command()
@click.argument("topics", type=TOPIC, metavar="TOPIC...", nargs=-1)
@click.option("--pattern", type=PatternType(), help="All topics whose whole name matches, instead of TOPIC.")
@click.option(
    "--from",
    "start",
    type=START,
    default="earliest",
    show_default=True,
    help="earliest, latest, -N (the last N of each partition), @TIME, or an offset.",
)
@click.option("--until", type=END, help="Stop before this: latest (the end as it is now), @TIME, or an offset.")
@click.option("--count", type=click.IntRange(min=1), metavar="N", help="Stop after N messages.")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(min=0),
    metavar="N",
    multiple=True,
    help="Only this partition. May be repeated.",
)
@click.option("--group", type=GROUP, help="Read as a member of this group, and commit what was printed.")
@click.option(
    "--follow/--exit-at-end",
    default=None,
    help="Wait for new messages, or stop at the end.  [default: follow on a terminal, else stop]",
)
@click.option("--format", "printer", type=FormatType(), help="What to print of each message; see below.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as a line of JSON.")
@connects
def consume(
    topics: Sequence[str],
    pattern: str | None,
    start: Start,
    until: Start | None,
    count: int | None,
    partitions: Sequence[int],
    group: str | None,
    follow: bool | None,
    printer: Printer | None,
    as_json: bool,
    target: Target,
) -> None:
    """Print the messages of topics.

    Without --group it leaves no trace: no group, no commit, nothing changes for other readers. With --group it begins
    where the group has got to; --from earliest or latest is for partitions of which the group has committed nothing.

    \b
    TIME:    @2026-11-01T08:00, @1793520000000 (ms since 1970), @-15m (s m h d ago)
    FORMAT:  %t topic  %p partition  %o offset  %T timestamp in ms
             %k key  %s value  %h headers  %K %S lengths  %% percent  \\n \\t \\xHH
             [default: '%s\\n']
    """
    if printer is not None and as_json:
        raise click.UsageError("give --format or --json, not both")
    if bool(topics) == (pattern is not None):
        raise click.UsageError("give topics or --pattern, not both" if topics else "give a TOPIC, or --pattern REGEX")
    if partitions and len(topics) != 1:
        raise click.UsageError("--partition goes with one topic")
    if until is not None and follow:
        raise click.UsageError("--until stops and --follow does not; give one of them")
    if follow is None:
        follow = until is None and is_terminal(sys.stdout)
    writer = MessageWriter(
        json_line if as_json else printer or compile_format(_DEFAULT_FORMAT), sys.stdout.buffer, count
    )
    try:
        if group is None:
            matched = None if pattern is None else re.compile(pattern)
            job = _Job(topics, matched, start, until or Start(StartKind.LATEST), partitions, follow)
            run_with_cluster(target, lambda cluster: _consume(cluster, job, writer))
        else:
            if until is not None or partitions or start.kind not in (StartKind.EARLIEST, StartKind.LATEST):
                raise click.UsageError(
                    "with --group give neither --until nor --partition, and --from earliest or latest"
                )
            _consume_as_group(group, topics, pattern, start, follow, target, writer)
    finally:
        if is_terminal(sys.stderr):
            print_note(f"{format_count(writer.printed, 'message')} read")


def _consume_as_group(
    group: str,
    topics: Sequence[str],
    pattern: str | None,
    start: Start,
    follow: bool,
    target: Target,
    writer: MessageWriter,
) -> None:
    from martlet.cli.consume_group import GroupJob, consume_as_group

    job = GroupJob(group, topics, pattern, start.kind is StartKind.EARLIEST, follow, target.timeout_ms)
    run_with_cluster(target, lambda cluster: consume_as_group(cluster, job, writer))


async def _consume(cluster: "Cluster", job: _Job, writer: MessageWriter) -> None:
    from martlet.client.fetcher import Fetcher, FetcherOptions, OutOfRange

    positions, held = await resolve_start(cluster, job.start, await _partitions(cluster, job))
    stops = await resolve_end(cluster, job.until, held)
    # A partition may lose its oldest messages while we read; going on with what is left is what a reader wants.
    options = FetcherOptions(read_committed=True, out_of_range=OutOfRange.EARLIEST)
    async with Fetcher(cluster, options) as fetcher:
        fetcher.assign({p: position for p, position in positions.items() if job.follow or position < stops[p]})
        while fetcher.positions and not writer.is_full:
            for fetched in await fetcher.fetch():
                writer.write(fetched, None if job.follow else stops[fetched.partition])
            writer.flush()
            if not job.follow:
                fetcher.unassign([p for p, position in fetcher.positions.items() if position >= stops[p]])


async def _partitions(cluster: "Cluster", job: _Job) -> list[TopicPartition]:
    if job.pattern is not None:
        return [
            TopicPartition(topic.name, index)
            for topic in await _matching(cluster, job.pattern)
            for index in topic.partitions
        ]
    found = []
    for name in dict.fromkeys(job.topics):
        info = await cluster.topic(name)
        for partition in job.partitions:
            if partition not in info.partitions:
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    f"topic {name!r} has no partition {partition}; it has {len(info.partitions)}, numbered from 0",
                )
        found += [TopicPartition(name, index) for index in job.partitions or info.partitions]
    return found


async def _matching(cluster: "Cluster", pattern: re.Pattern[str]) -> "list[TopicInfo]":
    topics = await cluster.refresh_all()
    matching = [topic for name, topic in topics.items() if not topic.is_internal and pattern.fullmatch(name)]
    if not matching:
        raise CommandFailed(
            ExitCode.NOT_FOUND, f"no topic matches {pattern.pattern!r}", "`martlet topic list` shows the topics"
        )
    return matching

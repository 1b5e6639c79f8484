"""`martlet publish`: messages from arguments, standard input or a file into a topic."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed, failure_of
from martlet.cli.input_lines import read_lines
from martlet.cli.message_format import Headers, InputMessage, parse_json_line, unescape
from martlet.cli.options import ASSIGNMENT, TOPIC, Target, connects, json_option
from martlet.cli.output import format_count, is_terminal, print_json, print_note
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.accumulator import Delivery
    from martlet.client.cluster import Cluster
    from martlet.client.producer import Producer, ProducerOptions

_ACKS: Final = {"all": -1, "1": 1, "0": 0}
_PROGRESS_SECONDS: Final = 0.5
_LINGER_MS: Final = 10
_LAST_ANSWERS_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Job:
    """What to publish and how, as the command line said it."""

    topic: str
    partition: int | None
    headers: Headers
    options: "ProducerOptions"
    arguments: Sequence[InputMessage]
    stream: BinaryIO
    parse: Callable[[bytes], InputMessage]
    creates: bool

    @property
    def is_typed(self) -> bool:
        return not self.arguments and self.stream.isatty()


@click.command()
@click.argument("topic", type=TOPIC, metavar="TOPIC")
@click.argument("messages", metavar="[MESSAGE]...", nargs=-1)
@click.option("--file", "file", type=click.File("rb"), metavar="FILE", help="Publish the lines of a file.")
@click.option("--key", help="Key of every message; equal keys stay in order in one partition.")
@click.option("--key-separator", metavar="TEXT", help=r"The key stands before this in each line, like ':' or '\t'.")
@click.option(
    "--header", "headers", multiple=True, type=ASSIGNMENT, help="A header for every message. May be repeated."
)
@click.option(
    "--partition",
    type=click.IntRange(min=0),
    metavar="N",
    help="Publish to this partition.  [default: by key, else spread]",
)
@click.option(
    "--compression",
    type=click.Choice(["none", "gzip", "snappy", "lz4", "zstd"]),
    default="none",
    show_default=True,
    help="How to compress batches.",
)
@click.option(
    "--acks",
    type=click.Choice(list(_ACKS)),
    default="all",
    show_default=True,
    help="Who must have a message before it counts: all in-sync replicas, the leader, or none.",
)
@click.option("--create", "creates", is_flag=True, help="Create the topic if there is none.  [default: ask, or refuse]")
@click.option("--jsonl", is_flag=True, help="Lines are JSON objects, as `consume --json` prints them.")
@json_option
@connects
def publish(
    topic: str,
    messages: Sequence[str],
    file: BinaryIO | None,
    key: str | None,
    key_separator: str | None,
    headers: Sequence[tuple[str, str]],
    partition: int | None,
    compression: str,
    acks: str,
    creates: bool,
    jsonl: bool,
    as_json: bool,
    target: Target,
) -> None:
    """Publish messages to a topic: the arguments, else the lines of a file or of standard input.

    With the default --acks all, each message is written once even if it had to be sent again.

    \b
    A line of --jsonl has "value" and, if you like, "key", "headers", "partition",
    "timestamp_ms"; "value_base64" and "key_base64" carry bytes that are not text:
      {"key": "42", "value": {"amount": 7}, "headers": {"source": "till-3"}}
    """
    if messages and file is not None:
        raise click.UsageError("give messages as arguments or --file, not both")
    parse = _parser(key, key_separator, jsonl)
    stream = file or sys.stdin.buffer
    job = _Job(
        topic=topic,
        partition=partition,
        headers=[(name, value.encode()) for name, value in headers],
        options=_options(compression, acks, target, is_interactive=not messages and stream.isatty()),
        arguments=[_parsed(parse, text.encode(), f"argument {n}") for n, text in enumerate(messages, 1)],
        stream=stream,
        parse=parse,
        creates=creates,
    )
    report = run_with_cluster(target, lambda cluster: _publish(cluster, job))
    if as_json:
        print_json(report)


def _options(compression: str, acks: str, target: Target, *, is_interactive: bool) -> "ProducerOptions":
    from martlet.client.producer import ProducerOptions
    from martlet.wire.compression import Compression

    return ProducerOptions(
        acks=_ACKS[acks],
        idempotent=acks == "all",
        compression=Compression[compression.upper()],
        linger_ms=0 if is_interactive else _LINGER_MS,
        delivery_timeout_ms=target.timeout_ms,
    )


def _parser(key: str | None, key_separator: str | None, jsonl: bool) -> Callable[[bytes], InputMessage]:
    if jsonl and (key is not None or key_separator is not None):
        raise click.UsageError("with --jsonl the key stands in each line, not in --key or --key-separator")
    if key is not None and key_separator is not None:
        raise click.UsageError("give --key or --key-separator, not both")
    if jsonl:
        return parse_json_line
    if key_separator is not None:
        try:
            separator = unescape(key_separator)
        except ValueError as error:
            raise click.UsageError(f"--key-separator: {error}") from None
        if not separator:
            raise click.UsageError("--key-separator cannot be empty")

        def split(line: bytes) -> InputMessage:
            before, found, after = line.partition(separator)
            return InputMessage(value=after, key=before) if found else InputMessage(value=line)

        return split
    key_bytes = None if key is None else key.encode()
    return lambda line: InputMessage(value=line, key=key_bytes)


def _parsed(parse: Callable[[bytes], InputMessage], line: bytes, where: str) -> InputMessage:
    try:
        return parse(line)
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, f"{where}: {error}") from None


async def _publish(cluster: "Cluster", job: _Job) -> dict[str, Any]:
    from martlet.client.producer import Producer

    await _ensure_topic(cluster, job)
    if job.is_typed:
        print_note("type one message per line; Ctrl-D ends")
    loop = asyncio.get_running_loop()
    started_at = loop.time()
    producer = Producer(cluster, job.options)
    statistics = producer.statistics
    try:
        async with producer:
            try:
                deliveries = await _send_all(producer, job)
                await producer.flush()
            except asyncio.CancelledError:
                # What was read may be on its way: the count said below is true only once its answers are here.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_LAST_ANSWERS_SECONDS):
                        await producer.flush()
                raise
            places = [await delivery for delivery in deliveries] if not statistics.failed else []
    except (CommandFailed, asyncio.CancelledError):
        print_note(f"published {format_count(statistics.delivered, 'message')} before this:")
        raise
    seconds = loop.time() - started_at
    if statistics.first_error is not None:
        failure = failure_of(statistics.first_error)
        total = statistics.delivered + statistics.failed
        raise CommandFailed(
            failure.exit_code if failure else ExitCode.FAILURE,
            f"{format_count(statistics.delivered, 'message')} of {total:,} published, then: {statistics.first_error}",
            failure.next_step if failure else None,
        )
    report = {"topic": job.topic, "messages": statistics.delivered, "seconds": round(seconds, 3)}
    if len(places) == 1:
        print_note(f"published to {job.topic}, partition {places[0].partition}, offset {places[0].offset}")
    else:
        print_note(f"published {format_count(statistics.delivered, 'message')} to {job.topic} in {seconds:.2f} s")
    if job.arguments:
        return {**report, "places": [{"partition": p.partition, "offset": p.offset} for p in places]}
    return report


async def _ensure_topic(cluster: "Cluster", job: _Job) -> None:
    """A topic that does not exist is made only if that is wanted: it may be a slip of the pen."""
    from martlet.client.admin import Admin, NewTopic
    from martlet.client.errors import TopicUnknown

    try:
        await cluster.topic(job.topic)
    except TopicUnknown as error:
        if not job.creates:
            if not is_terminal(sys.stdin):
                error.add_note(f"`martlet topic create {job.topic}` makes it, and so does --create")
                raise
            if not click.confirm(f"There is no topic {job.topic!r}. Create it?", default=True, err=True):
                raise CommandFailed(ExitCode.NOT_FOUND, "nothing was published") from None
    else:
        return
    try:
        await Admin(cluster).create_topic(NewTopic(name=job.topic))
    except ApiError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    print_note(f"created {job.topic}")


async def _send_all(producer: "Producer", job: _Job) -> "list[Delivery]":
    """Hand every message to the producer; returns the deliveries of those given as arguments."""
    if job.arguments:
        return [await _send(producer, job, message) for message in job.arguments]
    progress = _Progress()
    number = 0
    try:
        async for message in _input_messages(job):
            number += 1
            await _send(producer, job, message)
            if producer.statistics.failed:
                break
            progress.tell(number)
    finally:
        progress.clear()
    return []


async def _send(producer: "Producer", job: _Job, message: InputMessage) -> "Delivery":
    return await producer.send(
        job.topic,
        message.value,
        key=message.key,
        headers=[*job.headers, *message.headers],
        partition=message.partition if job.partition is None else job.partition,
        timestamp_ms=message.timestamp_ms,
    )


async def _input_messages(job: _Job) -> AsyncIterator[InputMessage]:
    name = getattr(job.stream, "name", "standard input")
    number = 0
    try:
        async for line in read_lines(job.stream):
            number += 1
            yield _parsed(job.parse, line, f"line {number} of {'standard input' if name == '<stdin>' else name}")
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, f"line {number + 1}: {error}") from None


class _Progress:
    """A line on the terminal that says how far we are; nothing without a terminal."""

    def __init__(self) -> None:
        self._is_shown = is_terminal(sys.stderr) and not is_terminal(sys.stdin)
        self._loop = asyncio.get_running_loop()
        self._started_at = self._shown_at = self._loop.time()

    def tell(self, count: int) -> None:
        now = self._loop.time()
        if self._is_shown and now - self._shown_at > _PROGRESS_SECONDS:
            self._shown_at = now
            rate = count / (now - self._started_at)
            click.echo(f"\r{format_count(count, 'message')}, {rate:,.0f}/s ", nl=False, err=True)

    def clear(self) -> None:
        if self._shown_at != self._started_at:
            click.echo("\r\x1b[K", nl=False, err=True)

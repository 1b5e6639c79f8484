"""`martlet sub`: work queues over topics. Made and changed here, and looked into without receiving anything."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import click

from martlet.base.ids import TopicPartition
from martlet.cli.confirmation import confirm_deletion
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import Target, complete_topics, connects, json_option
from martlet.cli.output import print_facts, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.queues import Subscription
    from martlet.wire.messages.describe_queues import DescribedQueue

_name = click.argument("name")
_settings = click.option(
    "--set", "given", multiple=True, metavar="NAME=VALUE", help="A setting, like lease.ms=60000; may be repeated."
)


@click.group()
def sub() -> None:
    """Subscriptions: every message of their topics goes to one worker, is leased to it and settled by it."""


@sub.command("create", short_help="Create a subscription of one or more topics.")
@_name
@click.option("--topic", "topics", multiple=True, shell_complete=complete_topics, help="One of its topics.")
@click.option("--pattern", "patterns", multiple=True, help='All topics whose names fit; "*" stands for anything.')
@click.option("--from", "start", help="earliest, latest (as of now, the default), or milliseconds since 1970.")
@click.option("--lease-ms", help="How long a worker has a message before it is given to another.")
@click.option("--attempts", help="How often a message is tried.")
@click.option("--backoff", help="immediate, fixed or exponential.")
@click.option("--backoff-ms", help="The pause after a failed attempt, or the first of them.")
@click.option("--dead-letters", metavar="TOPIC", help="Where messages go that have failed for good.")
@click.option("--paused", is_flag=True, help="Deliver nothing yet.")
@_settings
@json_option
@connects
def create(
    name: str, topics: tuple[str, ...], patterns: tuple[str, ...], paused: bool, given: tuple[str, ...], as_json: bool,
    target: Target, **options: str | None,
) -> None:  # fmt: skip
    """Create the subscription NAME of one or more topics."""
    names = {
        "start": "start", "lease_ms": "lease.ms", "attempts": "attempts.max", "backoff": "backoff",
        "backoff_ms": "backoff.ms", "dead_letters": "dead.letter.topic",
    }  # fmt: skip
    settings = {names[option]: value for option, value in options.items() if value is not None}
    settings.update((setting, value) for setting, value in _read_settings(given).items() if value is not None)
    if not topics and not patterns:
        raise click.UsageError("name what it is a subscription of: --topic or --pattern")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.queues import Queues

        await Queues(cluster).create(name, topics, patterns=patterns, settings=settings, is_paused=paused)

    run_with_cluster(target, work)
    _say(name, f"subscription {name!r} was created", as_json)


def _say(name: str, text: str, as_json: bool) -> None:
    """What was done, for people; the name, for programs that ask for JSON."""
    if as_json:
        print_json({"subscription": name})
    print_note(text)


def _read_settings(given: Iterable[str]) -> dict[str, str | None]:
    settings: dict[str, str | None] = {}
    for text in given:
        setting, separator, value = text.partition("=")
        if not separator:
            raise click.UsageError(f"{text!r} is not NAME=VALUE; without a value the setting is taken away")
        settings[setting] = value or None
    return settings


@sub.command("list")
@json_option
@connects
def list_subscriptions(as_json: bool, target: Target) -> None:
    """List the subscriptions and their topics."""

    async def work(cluster: "Cluster") -> "list[Subscription]":
        from martlet.client.queues import Queues

        return await Queues(cluster).subscriptions()

    found = run_with_cluster(target, work)
    if as_json:
        print_json([_as_json(one) for one in found])
    elif found:
        rows = [
            [one.name, ", ".join((*one.topics, *one.patterns)), "paused" if one.is_paused else "served"]
            for one in found
        ]
        print_table(["SUBSCRIPTION", "TOPICS", "STATE"], rows)
    else:
        print_note("there are no subscriptions; `martlet sub create NAME --topic TOPIC` makes one")


def _as_json(one: "Subscription") -> dict[str, Any]:
    return {
        "subscription": one.name,
        "topics": list(one.topics),
        "patterns": list(one.patterns),
        "covered": list(one.covered),
        "settings": dict(one.settings),
        "paused": one.is_paused,
    }


@sub.command("describe", short_help="Show settings, how many messages are where, and why.")
@_name
@json_option
@connects
def describe(name: str, as_json: bool, target: Target) -> None:
    """Show what NAME sets, how many messages are where, and why nothing is delivered."""

    async def work(cluster: "Cluster") -> "tuple[Subscription, list[DescribedQueue]]":
        from martlet.client.queues import Queues

        queues = Queues(cluster)
        return await queues.subscription(name), await queues.describe(name)

    found, queues = run_with_cluster(target, work)
    rows = [_row(queue) for queue in queues]
    headers = [
        "partition",
        "waiting",
        "leased",
        "backing off",
        "scheduled",
        "to dead letters",
        "oldest",
        "end",
        "remark",
    ]
    if as_json:
        print_json({**_as_json(found), "queues": [dict(zip(headers, row, strict=True)) for row in rows]})
        return
    facts = {
        "subscription": found.name,
        "topics": ", ".join((*found.topics, *found.patterns)),
        "state": "paused" if found.is_paused else "served",
        **dict(sorted(found.settings.items())),
    }
    print_facts(facts)
    if rows:
        print_table([header.upper() for header in headers], rows)


def _row(queue: "DescribedQueue") -> list[str | int]:
    place = f"{queue.topic}:{queue.partition}"
    if queue.error_code:
        return [place, 0, 0, 0, 0, 0, 0, 0, queue.error_message or "not served"]
    numbers = (queue.waiting, queue.leased + queue.closing, queue.backing_off, queue.scheduled, queue.copying)
    return [place, *numbers, queue.low_mark, queue.end, queue.stalled or ""]


@sub.command("alter", short_help="Change the topics or settings of a subscription.")
@_name
@click.option("--topic", "topics", multiple=True, help="Its topics from now on, instead of those it has.")
@click.option("--pattern", "patterns", multiple=True, help="Its patterns from now on.")
@_settings
@json_option
@connects
def alter(
    name: str, topics: tuple[str, ...], patterns: tuple[str, ...], given: tuple[str, ...], as_json: bool, target: Target
) -> None:
    """Change what is given of NAME, like --set attempts.max=10; `--set NAME=` takes a setting away."""
    if not (topics or patterns or given):
        raise click.UsageError("nothing is to be changed: give --set, --topic or --pattern")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.queues import Queues

        await Queues(cluster).alter(
            name, topics=topics or None, patterns=patterns or None, settings=_read_settings(given)
        )

    run_with_cluster(target, work)
    _say(name, f"subscription {name!r} was altered", as_json)


def _pause(name: str, as_json: bool, target: Target, *, is_paused: bool) -> None:
    async def work(cluster: "Cluster") -> None:
        from martlet.client.queues import Queues

        await Queues(cluster).alter(name, is_paused=is_paused)

    run_with_cluster(target, work)
    _say(name, f"subscription {name!r} {'is paused' if is_paused else 'goes on'}", as_json)


@sub.command("pause", short_help="Hand out no more messages.")
@_name
@json_option
@connects
def pause(name: str, as_json: bool, target: Target) -> None:
    """Hand out no more messages of NAME; what is leased can still be settled."""
    _pause(name, as_json, target, is_paused=True)


@sub.command("resume", short_help="Go on where it was paused.")
@_name
@json_option
@connects
def resume(name: str, as_json: bool, target: Target) -> None:
    """Go on where NAME was paused."""
    _pause(name, as_json, target, is_paused=False)


@sub.command("peek", short_help="Show messages that are not finished; receive nothing.")
@_name
@click.option("--from", "first", default=0, show_default=True, help="From this offset on.")
@click.option("--count", default=10, show_default=True, help="How many messages of each partition.")
@json_option
@connects
def peek(name: str, first: int, count: int, as_json: bool, target: Target) -> None:
    """Show messages of NAME that are not finished and where they are; nothing is received by it."""

    async def work(cluster: "Cluster") -> "list[DescribedQueue]":
        from martlet.client.queues import Queues

        return await Queues(cluster).describe(name, first=first, limit=count)

    queues = run_with_cluster(target, work)
    headers = ["partition", "offset", "state", "attempts", "holder"]
    rows: list[list[str | int]] = [
        [f"{queue.topic}:{queue.partition}", one.offset, one.state, one.attempts, one.holder or ""]
        for queue in queues
        for one in queue.messages
    ]
    if as_json:
        print_json([dict(zip(headers, row, strict=True)) for row in rows])
    elif rows:
        print_table([header.upper() for header in headers], rows)
    else:
        print_note("nothing waits")


@sub.command("seek", short_help="Go on at another offset of a partition.")
@_name
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.argument("offset", type=int)
@json_option
@connects
def seek(name: str, partition: str, offset: int, as_json: bool, target: Target) -> None:
    """Have NAME go on at OFFSET of a partition; its leases and counts there are forgotten."""
    topic, _, index = partition.rpartition(":")
    if not topic or not index.isdigit():
        raise click.UsageError(f"{partition!r} is not TOPIC:PARTITION")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.queues import Queues

        await Queues(cluster).seek(name, TopicPartition(topic, int(index)), offset)

    run_with_cluster(target, work)
    _say(name, f"subscription {name!r} goes on at offset {offset} of {partition}", as_json)


@sub.command("cancel", short_help="Never deliver one message, delayed or waiting.")
@_name
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.argument("offset", type=int)
@json_option
@connects
def cancel(name: str, partition: str, offset: int, as_json: bool, target: Target) -> None:
    """Never deliver one message to NAME, delayed or waiting; refused when a worker has it."""
    topic, _, index = partition.rpartition(":")
    if not topic or not index.isdigit():
        raise click.UsageError(f"{partition!r} is not TOPIC:PARTITION")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.queues import Queues

        await Queues(cluster).cancel(name, TopicPartition(topic, int(index)), offset)

    run_with_cluster(target, work)
    _say(name, f"offset {offset} of {partition} is cancelled for subscription {name!r}", as_json)


@sub.command("status")
@_name
@click.argument("partition", metavar="TOPIC:PARTITION")
@click.argument("offset", type=int)
@json_option
@connects
def status(name: str, partition: str, offset: int, as_json: bool, target: Target) -> None:
    """Show where one message is, for NAME."""

    async def work(cluster: "Cluster") -> "list[DescribedQueue]":
        from martlet.client.queues import Queues

        return await Queues(cluster).describe(name, first=offset, only_that=True)

    for queue in run_with_cluster(target, work):
        if f"{queue.topic}:{queue.partition}" == partition and queue.messages:
            (one,) = queue.messages
            facts: dict[str, str | int | None] = {
                "state": one.state,
                "attempts": one.attempts,
                "holder": one.holder or None,
            }
            if as_json:
                print_json({"subscription": name, "partition": partition, "offset": offset, **facts})
            else:
                print_facts(facts)
            return
    raise CommandFailed(ExitCode.NOT_FOUND, f"{partition} is no partition of subscription {name!r} that is served")


@sub.command("delete", short_help="Delete a subscription; messages stay in their topics.")
@_name
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@connects
def delete(name: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete NAME with all it knows of its messages; the messages stay in their topics."""
    if not yes:
        confirm_deletion(f"Delete subscription {name!r} and what it knows of its messages?")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.queues import Queues

        await Queues(cluster).delete(name)

    run_with_cluster(target, work)
    _say(name, f"subscription {name!r} was deleted", as_json)

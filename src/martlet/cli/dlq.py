"""`martlet dlq`: messages that have failed for good, where they came from and why, and publishing them again."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import click

from martlet.base.ids import TopicPartition
from martlet.cli.confirmation import confirm_deletion
from martlet.cli.options import Target, complete_topics, connects, json_option
from martlet.cli.output import format_count, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.dead_letters import DeadLetter

_Wanted: TypeAlias = "Callable[[DeadLetter], bool]"
_topic = click.argument("topic", shell_complete=complete_topics)


def _chooses(command: Callable[..., None]) -> Callable[..., None]:
    reason = click.option("--reason", help="Only those with this reason, like rejected.")
    subscription = click.option("--subscription", help="Only those of this subscription.")
    count = click.option("--count", type=click.IntRange(min=1), help="At most so many.")
    return reason(subscription(count(command)))


def _wanted(reason: str | None, subscription: str | None) -> _Wanted:
    def is_wanted(letter: "DeadLetter") -> bool:
        story = letter.story
        return reason in (None, story.get("reason")) and subscription in (None, story.get("subscription"))

    return is_wanted


@click.group()
def dlq() -> None:
    """Dead letters: messages of subscriptions that have failed for good."""


@dlq.command("list", short_help="List dead-letter topics and how many letters they hold.")
@json_option
@connects
def list_topics(as_json: bool, target: Target) -> None:
    """List the subscriptions with a dead-letter topic, and how many messages each topic holds."""

    async def work(cluster: "Cluster") -> list[list[Any]]:
        from martlet.client.offsets import offset_ranges
        from martlet.client.queues import Queues

        queues = Queues(cluster)
        rows: list[list[Any]] = []
        for one in await queues.subscriptions():
            topic = one.settings.get("dead.letter.topic")
            if topic:
                info = await cluster.topic(topic)
                held = await offset_ranges(cluster, [TopicPartition(topic, index) for index in info.partitions])
                waiting = sum(queue.copying for queue in await queues.describe(one.name))
                rows.append([one.name, topic, sum(map(len, held.values())), waiting])
        return rows

    rows = run_with_cluster(target, work)
    headers = ["subscription", "topic", "letters", "on their way"]
    if as_json:
        print_json([dict(zip(headers, row, strict=True)) for row in rows])
    elif rows:
        print_table(headers, rows)
    else:
        print_note("no subscription has a dead-letter topic")


@dlq.command("show", short_help="Show letters: why each failed, and where it comes from.")
@_topic
@_chooses
@json_option
@connects
def show(
    topic: str, reason: str | None, subscription: str | None, count: int | None, as_json: bool, target: Target
) -> None:
    """Show the letters in TOPIC: why each failed, after how many attempts, and where it comes from."""
    is_wanted = _wanted(reason, subscription)

    async def work(cluster: "Cluster") -> "list[DeadLetter]":
        from martlet.client.dead_letters import dead_letters

        found = []
        async for letter in dead_letters(cluster, topic):
            if is_wanted(letter):
                found.append(letter)
                if len(found) == count:
                    break
        return found

    headers = ["letter", "from", "subscription", "reason", "attempts", "detail"]
    rows: list[list[str | int]] = [
        [
            f"{letter.partition.partition}@{letter.record.offset}",
            letter.origin,
            *(letter.story.get(name, "") for name in ("subscription", "reason", "attempts", "detail")),
        ]
        for letter in run_with_cluster(target, work)
    ]
    if as_json:
        print_json([dict(zip(headers, row, strict=True)) for row in rows])
    elif rows:
        print_table(headers, rows)
    else:
        print_note("there are no such letters")


@dlq.command("redrive", short_help="Publish letters again where they come from.")
@_topic
@_chooses
@click.option("--to", "other", help="Publish them there, instead of where each comes from.")
@click.option("--rate", type=click.IntRange(min=1), help="At most so many a second.")
@click.option("--dry-run", is_flag=True, help="Only say how many there are.")
@json_option
@connects
def redrive(
    topic: str, reason: str | None, subscription: str | None, count: int | None, other: str | None, rate: int | None,
    dry_run: bool, as_json: bool, target: Target,
) -> None:  # fmt: skip
    """Publish letters of TOPIC again where they come from; they stay in TOPIC until it is purged.

    A letter begins a new count of attempts, and keeps its story in its headers.
    """
    is_wanted = _wanted(reason, subscription)

    async def work(cluster: "Cluster") -> int:
        from martlet.client.dead_letters import dead_letters, publish_again
        from martlet.client.producer import Producer

        done = 0
        async with Producer(cluster) as producer:
            async for letter in dead_letters(cluster, topic):
                if not is_wanted(letter):
                    continue
                if not dry_run:
                    await publish_again(producer, letter, other)
                    if rate is not None:
                        await asyncio.sleep(1 / rate)
                done += 1
                if done == count:
                    break
        return done

    done = run_with_cluster(target, work)
    if as_json:
        print_json({"topic": topic, "letters": done, "dry_run": dry_run})
    print_note(f"{'would publish' if dry_run else 'published'} {format_count(done, 'letter')} again")


@dlq.command("purge")
@_topic
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@connects
def purge(topic: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete all letters that TOPIC holds now."""
    if not yes:
        confirm_deletion(f"Delete all messages of topic {topic!r}?")

    async def work(cluster: "Cluster") -> int:
        from martlet.client.admin import Admin
        from martlet.client.offsets import offset_ranges

        info = await cluster.topic(topic)
        held = await offset_ranges(cluster, [TopicPartition(topic, index) for index in info.partitions])
        await Admin(cluster).delete_records({partition: range_.stop for partition, range_ in held.items() if range_})
        return sum(map(len, held.values()))

    deleted = run_with_cluster(target, work)
    if as_json:
        print_json({"topic": topic, "letters": deleted})
    print_note(f"{format_count(deleted, 'letter')} deleted")

"""`martlet transaction`: list transactional ids, show what one has open, find and abort what nobody will end."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import click

from martlet.base.clock import SystemClock
from martlet.cli.confirmation import confirm
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import TOPIC_SELECTION, Target, TopicSelection, connects, json_option
from martlet.cli.output import format_count, format_duration, print_facts, print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.transactions import (
        OpenProducer,
        TransactionDescription,
        TransactionListing,
    )

STATES: Final = ("Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort")
_HANGING_AFTER_SECONDS: Final = 900
"""As Kafka's tool: the longest time-out that producers may have by default."""
_NEVER_MS: Final = 2**31 - 1
_DAY_MS: Final = 86_400_000
"""By more than that the clocks of a producer and this machine do not differ."""


@click.group()
def transaction() -> None:
    """List transactions, show what one has open, find hanging ones, abort."""


@transaction.command("list")
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES, case_sensitive=False),
    multiple=True,
    help="Only ids in this state. May be repeated.",
)
@click.option("--open-for", type=click.IntRange(min=0), metavar="SECONDS", help="Only transactions open for longer.")
@click.option(
    "--hanging",
    is_flag=True,
    help="Instead: transactions open in a partition that no coordinator will ever end.",
)
@click.option(
    "--idle-for",
    type=click.IntRange(min=0),
    metavar="SECONDS",
    default=_HANGING_AFTER_SECONDS,
    show_default=True,
    help="With --hanging: only those to which nothing was written for so long.",
)
@json_option
@connects
def list_transactions(
    states: Sequence[str], open_for: int | None, hanging: bool, idle_for: int, as_json: bool, target: Target
) -> None:
    """List the transactional ids, or the transactions that hang.

    A hanging transaction holds readers of committed data at its first message until it is aborted with
    `martlet transaction abort --partition`.
    """
    if hanging:
        _list_hanging(target, idle_for, as_json=as_json)
        return

    async def work(cluster: "Cluster") -> "list[TransactionListing]":
        from martlet.client.transactions import Transactions

        older_than_ms = -1 if open_for is None else open_for * 1_000
        return await Transactions(cluster).listings(states=states, older_than_ms=older_than_ms)

    found = run_with_cluster(target, work)
    if as_json:
        print_json([listing.to_json() for listing in found])
    elif not found:
        wanted = "no transaction is like that" if states or open_for is not None else "there are no transactional ids"
        print_note(f"{wanted}; an id appears when its first producer starts")
    else:
        print_table(
            ["TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"],
            [[one.transactional_id, one.state, one.producer_id, one.coordinator] for one in found],
        )


def _list_hanging(target: Target, idle_for: int, *, as_json: bool) -> None:
    now_ms = SystemClock().now_ms()

    async def work(cluster: "Cluster") -> "list[OpenProducer]":
        from martlet.client.transactions import Transactions

        topics = await cluster.refresh_all()
        return await Transactions(cluster).hanging(topics.values(), older_than_ms=idle_for * 1_000, now_ms=now_ms)

    found = run_with_cluster(target, work)
    if as_json:
        print_json([one.to_json() for one in found])
    elif not found:
        print_note("no transaction hangs")
    else:
        print_table(
            ["PARTITION", "FROM OFFSET", "PRODUCER", "EPOCH", "IDLE FOR"],
            [
                [
                    f"{one.partition.topic}:{one.partition.partition}",
                    one.first_offset,
                    one.producer_id,
                    one.producer_epoch,
                    format_duration(max(0, now_ms - one.last_write_at_ms)),
                ]
                for one in found
            ],
        )


@transaction.command()
@click.argument("name", metavar="TRANSACTIONAL_ID")
@json_option
@connects
def describe(name: str, as_json: bool, target: Target) -> None:
    """Show what a transactional id has open, for how long, and where."""

    async def work(cluster: "Cluster") -> "TransactionDescription":
        from martlet.client.transactions import Transactions

        return await Transactions(cluster).describe(name)

    found = run_with_cluster(target, work)
    if as_json:
        print_json(found.to_json())
        return
    age_ms = None if found.started_at_ms is None else max(0, SystemClock().now_ms() - found.started_at_ms)
    has_limit = found.timeout_ms != _NEVER_MS
    print_facts(
        {
            "transactional id": found.transactional_id,
            "coordinator": found.coordinator,
            "state": found.state,
            "producer": found.producer_id,
            "epoch": found.producer_epoch,
            "open for": None if age_ms is None else format_duration(age_ms),
            "aborted after": format_duration(found.timeout_ms) if has_limit else "never, it is ended from outside",
        }
    )
    if found.partitions:
        click.echo()
        print_table(["TOPIC", "PARTITION"], [[topic, index] for topic, index in sorted(found.partitions)])


@transaction.command()
@click.argument("name", metavar="[TRANSACTIONAL_ID]", required=False)
@click.option(
    "--partition", "place", type=TOPIC_SELECTION, help="TOPIC:PARTITION of a hanging transaction, instead of an id."
)
@click.option("--producer", type=click.IntRange(min=0), metavar="ID", help="With --partition: whose transaction it is.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@json_option
@connects
def abort(
    name: str | None, place: TopicSelection | None, producer: int | None, yes: bool, as_json: bool, target: Target
) -> None:
    """Abort an open transaction: nothing of it will ever be seen.

    With an id the coordinator aborts it, everywhere. With --partition and --producer a hanging one is ended in that
    partition alone; one that its coordinator knows is refused, because it has to be ended there.
    """
    if name is not None and place is None and producer is None:
        _abort_known(name, target, ask=not yes, as_json=as_json)
    elif name is None and place is not None and producer is not None and len(place.partitions or ()) == 1:
        _abort_hanging(place, producer, target, ask=not yes, as_json=as_json)
    else:
        raise CommandFailed(
            ExitCode.USAGE, "give a transactional id, or --partition TOPIC:PARTITION together with --producer"
        )


def _abort_known(name: str, target: Target, *, ask: bool, as_json: bool) -> None:
    if ask:
        confirm(f"Abort the open transaction of {name!r}?", "nothing was aborted")

    async def work(cluster: "Cluster") -> "TransactionDescription":
        from martlet.client.transactions import Transactions

        return await Transactions(cluster).abort(name)

    aborted = run_with_cluster(target, work)
    if as_json:
        print_json({"transactional_id": name, "partitions": len(aborted.partitions)})
    print_note(f"aborted the transaction of {name} in {format_count(len(aborted.partitions), 'partition')}")


def _abort_hanging(place: TopicSelection, producer: int, target: Target, *, ask: bool, as_json: bool) -> None:
    shown = f"{place.topic}:{(place.partitions or (0,))[0]}"
    if ask:
        confirm(f"Abort the transaction of producer {producer} in {shown}?", "nothing was aborted")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.transactions import Transactions

        transactions = Transactions(cluster)
        topics = [await cluster.topic(place.topic)]
        is_it = _Wanted(producer, (place.partitions or (0,))[0])
        if not any(map(is_it, await transactions.open_in(topics))):
            raise CommandFailed(ExitCode.FAILURE, f"producer {producer} has no open transaction in {shown}")
        found = [
            one for one in await transactions.hanging(topics, older_than_ms=0, now_ms=_NEVER_MS << 31) if is_it(one)
        ]
        if not found:
            text = f"the transaction of producer {producer} in {shown} does not hang: its coordinator knows it"
            raise CommandFailed(
                ExitCode.FAILURE, text, "abort it by its id: `martlet transaction list --state ongoing`"
            )
        for one in found:
            await transactions.abort_hanging(one)

    run_with_cluster(target, work)
    if as_json:
        print_json({"producer": producer, "partition": shown})
    print_note(f"aborted the transaction of producer {producer} in {shown}")


class _Wanted:
    """Whether an open transaction is the one that was named."""

    def __init__(self, producer: int, index: int) -> None:
        self._producer = producer
        self._index = index

    def __call__(self, one: "OpenProducer") -> bool:
        return one.producer_id == self._producer and one.partition.partition == self._index

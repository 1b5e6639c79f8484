"""`./dev crash --transactions`: a broker is killed while transactions end, and each end is all or nothing.

Each round is a step of a group of transactions (decision 0032): several tasks write to all partitions, each attempt in
a child of its own, some attempts are losers, and one call ends the step. Somewhere in it the broker is killed with
SIGKILL and started again. Now and then another run takes the group over in the middle of a step. Besides, each round
prepares a transaction without a time-out, whose client then goes away for good, and the next round ends it by its id.

In the end a reader of committed data must find exactly the rows of the attempts that the stored decisions name, each
once, and exactly the prepared transactions that were committed.
"""

import asyncio
import json
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from bench.processes import BrokerProcess
from martlet.base.addresses import Address
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.client.accumulator import ProducerIdentity
from martlet.client.admin import Admin, NewTopic
from martlet.client.cluster import Cluster
from martlet.client.errors import ClientError, OutcomeUnknown
from martlet.client.fetcher import Fetcher, FetcherOptions
from martlet.client.offsets import LATEST, list_offsets
from martlet.client.options import ClientOptions
from martlet.client.transaction_groups import Child, GroupToken, TransactionGroups, child_id
from martlet.client.transactional_producer import TransactionalOptions, TransactionalProducer

T = TypeVar("T")

_TOPIC: Final = "steps"
_GROUP: Final = "program"
_PARTITIONS: Final = 3
_TASKS: Final = 4
_KILL_WITHIN_SECONDS: Final = 0.8
_LOSER_SHARE: Final = 0.3
_NEW_RUN_SHARE: Final = 0.15
_STEP_SECONDS_MAX: Final = 60.0
_READ_BYTES_MAX: Final = 1 << 20
_OPTIONS: Final = ClientOptions(request_timeout_ms=5_000, retry_timeout_ms=20_000, connect_timeout_ms=1_000)
_TWO_PHASE: Final = TransactionalOptions(two_phase=True)
_FAILURES: Final = (ApiError, ClientError, OutcomeUnknown, OSError)


@dataclass
class GroupsReport:
    """How a run went."""

    rounds: int
    seed: int
    seconds: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def summary(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.counts.items()))
        return (
            f"crash with transactions: {self.rounds} rounds, seed {self.seed}, {self.seconds:.0f} s: {counts}; "
            f"{len(self.violations)} violations"
        )


class GroupsTest:
    """One run; `run` may be called once."""

    def __init__(self, directory: Path, *, rounds: int, seed: int) -> None:
        self.report = GroupsReport(rounds, seed)
        self._broker = BrokerProcess(directory, extra=["--set", "transaction_two_phase_commit=true"])
        self._chance = random.Random(f"groups {seed}")
        self._runs = 0
        self._token: GroupToken | None = None
        self._expected: Counter[bytes] = Counter()
        self._prepared: list[tuple[str, bytes]] = []
        """Transactional ids of transactions that wait for their end, with what they wrote."""

    def run(self) -> GroupsReport:
        started = time.monotonic()
        with self._broker as broker:
            broker.start_and_wait()
            asyncio.run(self._all())
        self.report.seconds = time.monotonic() - started
        return self.report

    def _cluster(self) -> Cluster:
        return Cluster([Address("127.0.0.1", self._broker.port)], _OPTIONS)

    async def _all(self) -> None:
        async with self._cluster() as cluster:
            await Admin(cluster).create_topic(NewTopic(name=_TOPIC, partitions=_PARTITIONS, replication_factor=1))
        for number in range(self.report.rounds):
            strike = asyncio.create_task(self._strike())
            try:
                async with asyncio.timeout(_STEP_SECONDS_MAX):
                    await self._step(number)
                    await self._end_prepared()
                    await self._prepare(number)
                    await strike
            except TimeoutError:
                strike.cancel()
                self.report.violations.append(f"round {number} did not end within {_STEP_SECONDS_MAX:.0f} s")
                return
            if self.report.violations:
                return
        await self._end_prepared()
        await self._judge()

    async def _strike(self) -> None:
        """kill -9 at some moment of the step, and a start right after it."""
        await asyncio.sleep(self._chance.uniform(0, _KILL_WITHIN_SECONDS))
        self._broker.kill()
        self._broker.start()
        self.report.counts["kills"] += 1

    async def _until_done(self, attempt: Callable[[Cluster], Awaitable[T]]) -> T:
        """Again and again with a new client; refusals that only the caller understands come through."""
        while True:
            try:
                async with self._cluster() as cluster:
                    return await attempt(cluster)
            except ApiError as error:
                if error.code in (ErrorCode.TRANSACTION_ABORTABLE, ErrorCode.PRODUCER_FENCED):
                    raise
            except _FAILURES:
                pass
            await asyncio.sleep(0.1)

    # --- steps of the group

    async def _step(self, number: int) -> None:
        attempts: Counter[int] = Counter()
        while True:
            if self._token is None or self._chance.random() < _NEW_RUN_SHARE:
                await self._take_over(number)
            token = self._token
            assert token is not None
            try:
                winners = await self._write(token, number, attempts)
                named = json.dumps([winner.transactional_id for winner in winners]).encode()

                async def end(
                    cluster: Cluster, token: GroupToken = token, winners: list[Child] = winners, note: bytes = named
                ) -> bytes:
                    decision = await TransactionGroups(cluster).end(token, number, winners, note)
                    self.report.counts["repeated ends"] += decision.already_done
                    return decision.note

                self._decided(await self._until_done(end))
                return
            except ApiError as error:
                self.report.counts[f"ends refused with {error.code.name}"] += 1

    async def _take_over(self, number: int) -> None:
        """As a program that was started again would."""
        self._runs += 1
        run, old = self._runs.to_bytes(16, "big"), self._token
        self._token = await self._until_done(
            lambda cluster: TransactionGroups(cluster).open(_GROUP, run, next_sequence=number)
        )
        if old is not None:
            self.report.counts["runs superseded"] += 1
            try:
                await self._until_done(lambda cluster: TransactionGroups(cluster).end(old, number, []))
            except ApiError as error:
                if error.code is ErrorCode.PRODUCER_FENCED:
                    return
            self.report.violations.append(f"step {number} was ended by a run that was superseded")

    async def _write(self, token: GroupToken, number: int, attempts: Counter[int]) -> list[Child]:
        """Every task until one attempt of it has written; some have a second one, which nobody needs."""
        return list(await asyncio.gather(*(self._task(token, number, task, attempts) for task in range(_TASKS))))

    async def _task(self, token: GroupToken, number: int, task: int, attempts: Counter[int]) -> Child:
        children: list[Child] = []
        wanted = 1 + (self._chance.random() < _LOSER_SHARE)
        while len(children) < wanted:
            name = child_id(token, number, task, attempts[task])
            attempts[task] += 1
            try:
                children.append(await self._child(name))
            except ApiError as error:
                if error.code is ErrorCode.PRODUCER_FENCED:
                    raise
            except _FAILURES:
                pass
        self.report.counts["losing attempts"] += wanted - 1
        return children[-1]

    async def _child(self, name: str) -> Child:
        async with self._cluster() as cluster, TransactionalProducer(cluster, name) as producer:
            producer.begin()
            for partition in range(_PARTITIONS):
                await producer.send(_TOPIC, row(name, partition), partition=partition)
            return Child(name, await producer.prepare())

    def _decided(self, note: bytes) -> None:
        self.report.counts["steps"] += 1
        self._expected.update(row(name, partition) for name in json.loads(note) for partition in range(_PARTITIONS))

    # --- prepared transactions

    async def _prepare(self, number: int) -> None:
        """A transaction that is ended in a later round, by a client that only knows its id."""
        name = f"prepared-{number}"

        async def prepare(cluster: Cluster) -> None:
            producer = TransactionalProducer(cluster, name, _TWO_PHASE)
            await producer.start()
            producer.begin()
            await producer.send(_TOPIC, name.encode(), partition=number % _PARTITIONS)
            await producer.prepare()
            await producer.aclose()

        await self._until_done(prepare)
        self._prepared.append((name, name.encode()))

    async def _end_prepared(self) -> None:
        for name, value in self._prepared:
            is_commit = self._chance.random() < 0.5
            # What this round writes under the new pair comes only after the end, so a repetition finds nothing open.
            if await self._until_done(lambda cluster, name=name, is_commit=is_commit: _end(cluster, name, is_commit)):  # type: ignore[misc]
                self.report.counts["prepared ended"] += 1
                if is_commit:
                    self._expected[value] += 1
        self._prepared.clear()

    # --- the judgement

    async def _judge(self) -> None:
        found = await self._until_done(_read_committed)
        for value in sorted(found.keys() | self._expected.keys()):
            seen, wanted = found[value], self._expected[value]
            if seen != wanted:
                self.report.violations.append(f"{value!r} is there {seen} times, decided was {wanted}")
        self.report.counts["rows"] = found.total()


def row(name: str, partition: int) -> bytes:
    """What a child writes to a partition."""
    return f"{name} {partition}".encode()


async def _end(cluster: Cluster, name: str, is_commit: bool) -> bool:
    """Take a prepared transaction over and end it; whether there was one, which a repetition cannot say."""
    producer = TransactionalProducer(cluster, name, _TWO_PHASE)
    kept: ProducerIdentity | None = await producer.start(keep_prepared=True)
    try:
        if kept is not None:
            await (producer.commit() if is_commit else producer.abort())
    finally:
        await producer.aclose()
    return True


async def _read_committed(cluster: Cluster) -> Counter[bytes]:
    partitions = [TopicPartition(_TOPIC, number) for number in range(_PARTITIONS)]
    ends = await list_offsets(cluster, dict.fromkeys(partitions, LATEST))
    found: Counter[bytes] = Counter()
    async with asyncio.timeout(60), Fetcher(cluster, FetcherOptions(max_wait_ms=100, read_committed=True)) as fetcher:
        fetcher.assign(dict.fromkeys(partitions, 0))
        while any(fetcher.positions[partition] < ends[partition].offset for partition in partitions):
            for fetched in await fetcher.fetch():
                found.update(record.value or b"" for record in fetched.records(batch_bytes_max=_READ_BYTES_MAX))
    return found


def run_groups_test(directory: Path, *, rounds: int, seed: int) -> GroupsReport:
    """Run it in `directory`, which stays behind."""
    return GroupsTest(directory, rounds=rounds, seed=seed).run()

"""The controller's task: takes the role when no broker has it, and then carries out what the cluster needs.

Rules: what is to be done is decided by `martlet.cluster.controller_round`; every commit compares all it rests on, so
two controllers, or one with an old image, do no harm. Elections by which acknowledged messages may be lost are never
silent, and neither are partitions that wait for an operator to allow one.

How it works: every process runs this task. It checks after each step of the image that may matter, and when a time has
come. A process that finds the role free tries to take it, under its lease; the one that has it does rounds until there
is nothing more to do. A process that has followed the store all along knows who was there, so a role that changes hands
costs no waiting; only after a silence of the store, in which leases of others may have run out without their fault, is
no broker fenced for the time of a lease (`FencingGuard`).

Proved by: tests/unit/broker/administration/test_controller.py, tests/properties/test_controller.py
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import DiskFull
from martlet.base.ids import LeaderEpoch, Member, TopicPartition
from martlet.broker.administration.unclean_notice import announce_unclean
from martlet.broker.membership.lease_keeper import LeaseKeeper
from martlet.broker.membership.metadata_commits import MetadataCommits
from martlet.cluster.controller_decisions import stuck_partitions
from martlet.cluster.controller_round import RoundOptions, asks_for_round, plan_round
from martlet.cluster.image import ImageDelta
from martlet.cluster.liveness import BrokerStates, FencingGuard, plan_controller_role, read_states
from martlet.cluster.partition_plans import PARTITIONS_PER_COMMIT, Decision, PartitionsPlan
from martlet.cluster.store import LeaseLost, StoreClosed, StoreUnavailable, UnknownOutcome
from martlet.configs.effective import BrokerLayers
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

_RETRY_MS: Final = 500
_LOOK_MS_MAX: Final = 10_000
"""Even when nothing seems to call for it: a check costs little."""

_NAMED_MAX: Final = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """How the controller of this process goes about its work."""

    lease_ms: int
    layers: Callable[[], BrokerLayers]
    """The settings in force for all topics, as they are now."""
    imbalance_percent: int = 10
    balance_interval_ms: int = 300_000
    """Time between checks for leaders that have strayed; 0: never."""


class Controller:
    """One task from `start` to `aclose`."""

    def __init__(
        self,
        me: Member,
        commits: MetadataCommits,
        keeper: LeaseKeeper,
        clock: Clock,
        options: ControllerOptions,
        metrics: BrokerMetrics,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._me = me
        self._commits = commits
        self._image = commits.image
        self._keeper = keeper
        self._clock = clock
        self._layers = options.layers
        self._options = options
        self._metrics = metrics
        self._on_failure = on_failure
        self._guard = FencingGuard(options.lease_ms, clock.monotonic_ms())
        self._partitions_per_commit = PARTITIONS_PER_COMMIT
        self._balanced_at_ms = clock.monotonic_ms()
        self._stuck: set[tuple[TopicPartition, LeaderEpoch]] = set()
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.elections = 0
        """Leaders elected by this process."""

    @property
    def has_role(self) -> bool:
        """Whether this very process has the role, as far as the image knows."""
        role = self._image.controller
        return role is not None and role.holder == self._me

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="martlet-controller")
        self._task.add_done_callback(self._ended)
        self._wake.set()

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def follow(self, delta: ImageDelta) -> None:
        """A step of the image: check again if it can have given the controller something to do."""
        if delta.controller or asks_for_round(delta):
            self._wake.set()

    # --- the task

    async def _run(self) -> None:
        wait_ms = 0
        while True:
            try:
                async with asyncio.timeout(wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                wait_ms = await self._look()
            except (StoreUnavailable, LeaseLost, DiskFull) as error:
                logger.debug("the controller waits for the metadata store: %s", error)
                wait_ms = _RETRY_MS
            except UnknownOutcome as error:
                logger.warning("the controller does not know whether a commit happened (%s); reading back", error)
                wait_ms = await self._read_back()

    async def _look(self) -> int:
        """Do what there is to do; returns after how many milliseconds to check again by itself."""
        lease = self._keeper.lease
        if lease is None or not self._keeper.may_act():
            return _RETRY_MS
        if self._image.controller is None and not await self._take_role():
            return _RETRY_MS
        if not self.has_role:
            return _LOOK_MS_MAX
        return await self._do_round()

    async def _take_role(self) -> bool:
        broker = self._image.broker(self._me.broker)
        if broker is None or broker.incarnation != self._me.incarnation:
            return False
        plan = plan_controller_role(broker, self._image)
        if plan is not None and await self._commits.commit(plan, lease=self._keeper.lease):
            logger.info("broker %d is the controller now", self._me.broker)
        return True

    async def _do_round(self) -> int:
        now_ms = self._clock.monotonic_ms()
        if self._keeper.silence_ms() > self._options.lease_ms // 2:
            # Who is missing may have been kept from renewing, as we were.
            self._guard.began(now_ms)
        states = read_states(self._image)
        states = states.holding_back(self._guard.check(states.missing, now_ms))
        balances = self._balance_is_due(now_ms)
        count = await self._carry_out(states, balances=balances)
        if count:
            return 0
        self._report_stuck(states)
        if balances:
            self._balanced_at_ms = now_ms
        return self._next_look_ms(states, now_ms)

    async def _carry_out(self, states: BrokerStates, *, balances: bool) -> int:
        """Commit a round; returns how many commits there were, carried out or not."""
        options = RoundOptions(
            partitions_per_commit=self._partitions_per_commit,
            imbalance_percent=self._options.imbalance_percent if balances else None,
        )
        plans = list(plan_round(self._image, states, self._layers(), options))
        lost = 0
        for plan in plans:
            announce_unclean(plan.decisions, self._metrics)
            if await self._commits.commit(plan.commit):
                self._report(plan)
            else:
                lost += 1
        # A controller that keeps losing comparisons does less at once.
        self._partitions_per_commit = max(1, self._partitions_per_commit // 2) if lost else PARTITIONS_PER_COMMIT
        return len(plans)

    def _report(self, plan: PartitionsPlan) -> None:
        elections = [decision for decision in plan.decisions if decision.is_election]
        elected = [decision for decision in elections if decision.after.leader is not None]
        without = [decision for decision in elections if decision.after.leader is None]
        self.elections += len(elected)
        if elected:
            logger.info("%d partition(s) got another leader: %s", len(elected), _some(map(_described, elected)))
        if without:
            names = _some(str(decision.partition) for decision in without)
            logger.error("%d partition(s) have no leader: no complete replica is alive: %s", len(without), names)
        for decision in plan.unclean:
            logger.critical(
                "%s is led by broker %s from now on, which may lack acknowledged messages: no replica was complete",
                decision.partition,
                decision.after.leader,
            )

    def _report_stuck(self, states: BrokerStates) -> None:
        """Once for each: what happens to it next is up to an operator."""
        stuck = {
            (TopicPartition(topic, partition.partition), partition.leader_epoch)
            for topic, partition in stuck_partitions(self._image, states, self._layers())
        }
        if found := sorted(stuck - self._stuck):
            logger.critical(
                "%d partition(s) get no leader by themselves, because the one that held all has lost its disk since, "
                "or power: %s. To go on with what is left, accepting loss: martlet partition elect --unclean "
                "TOPIC:PARTITION",
                len(found),
                _some(str(partition) for partition, _ in found),
            )
        self._stuck = stuck

    def _balance_is_due(self, now_ms: int) -> bool:
        interval_ms = self._options.balance_interval_ms
        return interval_ms > 0 and now_ms - self._balanced_at_ms >= interval_ms

    def _next_look_ms(self, states: BrokerStates, now_ms: int) -> int:
        times_ms = [_LOOK_MS_MAX]
        fencing_ms = self._guard.next_check_at_ms(states.missing, now_ms)
        if fencing_ms is not None:
            times_ms.append(fencing_ms - now_ms)
        if self._options.balance_interval_ms > 0:
            times_ms.append(self._balanced_at_ms + self._options.balance_interval_ms - now_ms)
        return max(1, min(times_ms))

    async def _read_back(self) -> int:
        try:
            await self._commits.catch_up()
        except (StoreUnavailable, DiskFull):
            return _RETRY_MS
        return 0

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StoreClosed):
            self._on_failure(error)


def _described(decision: Decision) -> str:
    return f"{decision.partition} by broker {decision.after.leader} in epoch {decision.after.leader_epoch}"


def _some(names: Iterable[str]) -> str:
    first = list(islice(names, _NAMED_MAX + 1))
    return ", ".join(first[:_NAMED_MAX]) + (", …" if len(first) > _NAMED_MAX else "")

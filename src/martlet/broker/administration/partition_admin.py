"""Executes requests about partitions and brokers: elections, moves, draining, removal.

Rules: what to commit is decided by the pure functions of `martlet.cluster`. Any broker can do it: it needs no role but
compare-and-swap. The controller follows and finishes a move that has begun.

How it works: decisions about many partitions are made in batches from the image as it is, turned into commits at once
(so that what a commit compares is what the decision was made from) and committed. A decision that lost its comparison
is made again; if it is unnecessary then, a commit whose answer was lost, or the controller, has done it.

Invariant: (ADM-1) every partition of a request has an outcome: None when it is as requested, or the error that says
why not.

Proved by: tests/unit/broker/administration/test_partition_admin.py, tests/broker/test_partition_apis.py
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from martlet.base.clock import Clock
from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.administration.unclean_notice import announce_unclean
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.controller_decisions import decide_requested_election, topic_rules
from martlet.cluster.liveness import BrokerStates, read_states
from martlet.cluster.partition_moves import plan_drain, plan_drain_end, plan_removal
from martlet.cluster.partition_plans import Decision, plan_partitions
from martlet.cluster.reassignment import decide_wish
from martlet.cluster.store import CommitPlan
from martlet.configs.effective import BrokerLayers
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)

Outcomes = dict[TopicPartition, ApiError | None]
Decide = Callable[[TopicPartition, BrokerStates], Decision | None]

_BATCH: Final = 500

_DONE_ALREADY: Final = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


class PartitionAdmin:
    """Safe to call from many tasks of one event loop."""

    def __init__(
        self, changes: MetadataChanges, clock: Clock, layers: Callable[[], BrokerLayers], metrics: BrokerMetrics
    ) -> None:
        self._changes = changes
        self._image = changes.image
        self._clock = clock
        self._layers = layers
        self._metrics = metrics

    # --- partitions

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition], *, unclean: bool, outcomes: Outcomes | None = None
    ) -> Outcomes:
        """Give each partition its preferred leader or, if none leads it and loss is accepted, any that is alive.

        `outcomes` is filled while it works, for callers that do not wait for the end.
        """
        image, layers = self._image, self._layers()

        def decide(partition: TopicPartition, states: BrokerStates) -> Decision:
            topic, record = image.topic(partition.topic), image.partition(*partition)
            if topic is None or record is None:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
            return decide_requested_election(topic, record, states, topic_rules(topic, layers), unclean=unclean)

        return await self._execute(partitions, decide, outcomes)

    async def reassign(
        self,
        requests: Mapping[TopicPartition, Sequence[int] | None],
        *,
        factor_may_change: bool = True,
        outcomes: Outcomes | None = None,
    ) -> Outcomes:
        """Begin to move each partition to the brokers named, or cancel its move; `outcomes` as above."""
        image, layers = self._image, self._layers()

        def decide(partition: TopicPartition, states: BrokerStates) -> Decision | None:
            request = (partition, requests[partition])
            return decide_wish(request, image, states, layers, factor_may_change=factor_may_change)

        return await self._execute(requests, decide, outcomes)

    async def _execute(
        self, partitions: Iterable[TopicPartition], decide: Decide, outcomes: Outcomes | None
    ) -> Outcomes:
        outcomes = {} if outcomes is None else outcomes
        waiting = iter(dict.fromkeys(partitions))
        while batch := list(islice(waiting, _BATCH)):
            try:
                await self._execute_batch(batch, decide, outcomes)
            except ApiError as error:
                # The store cannot be reached, or others are always faster: the outcome of all that have none yet.
                for partition in batch:
                    outcomes.setdefault(partition, error)
            await asyncio.sleep(0)
        return outcomes

    async def _execute_batch(self, batch: list[TopicPartition], decide: Decide, outcomes: Outcomes) -> None:
        for attempt in self._changes.attempts():
            waiting = [partition for partition in batch if partition not in outcomes]
            decisions = self._decide_each(waiting, decide, outcomes, is_again=attempt > 0)
            if not decisions:
                return
            for plan in list(plan_partitions(decisions, self._image)):
                announce_unclean(plan.decisions, self._metrics)
                if await self._changes.commit(plan.commit) is not None:
                    for decision in plan.decisions:
                        outcomes[decision.partition] = None
                        _log(decision)

    def _decide_each(
        self, waiting: list[TopicPartition], decide: Decide, outcomes: Outcomes, *, is_again: bool
    ) -> list[Decision]:
        states = read_states(self._image)
        decisions = []
        for partition in waiting:
            try:
                decision = decide(partition, states)
            except ApiError as error:
                outcomes[partition] = None if is_again and error.code in _DONE_ALREADY else error
                continue
            if decision is None:
                outcomes[partition] = None
            else:
                decisions.append(decision)
        return decisions

    # --- brokers

    async def drain_broker(self, target: BrokerId, *, validate_only: bool = False) -> None:
        """Empty a broker: from now on it gets nothing new, and the controller moves away what it holds."""

        def decide() -> CommitPlan | None:
            plan = plan_drain(target, self._image, read_states(self._image), now_ms=self._clock.now_ms())
            return None if validate_only else plan

        if await self._changes.execute(decide):
            logger.info("broker %d is drained from now on", target)

    async def undrain_broker(self, target: BrokerId, *, validate_only: bool = False) -> None:
        """Let a broker keep what it holds and get more again."""

        def decide() -> CommitPlan | None:
            if self._image.broker(target) is None:
                raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no broker {target} in this cluster")
            plan = plan_drain_end(target, self._image)
            return None if validate_only else plan

        if await self._changes.execute(decide):
            logger.info("broker %d is not drained any more", target)

    async def remove_broker(self, target: BrokerId) -> None:
        """Remove a broker that is drained, holds nothing and has stopped."""
        for attempt in self._changes.attempts():
            # When it is gone at the second attempt, a commit whose answer was lost did happen.
            is_gone = attempt > 0 and self._image.broker(target) is None
            if is_gone or await self._changes.commit(plan_removal(target, self._image)) is not None:
                logger.info("broker %d was removed from the cluster", target)
                return


def _log(decision: Decision) -> None:
    after = decision.after
    if decision.is_unclean:
        logger.critical(
            "%s: broker %s leads from now on by an unclean election that was asked for; "
            "messages that were acknowledged may be lost",
            decision.partition,
            after.leader,
        )
    elif after.adding or after.removing:
        logger.info("%s: moves to the brokers %s", decision.partition, list(after.replicas))
    else:
        logger.info("%s: led by broker %s, held by %s", decision.partition, after.leader, list(after.replicas))

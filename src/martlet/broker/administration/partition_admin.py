"""Carries out what somebody asks for about partitions and brokers: elections, moves, draining, removal.

Rules: what to commit is decided by the pure functions of `martlet.cluster`; here are only the reading before, the
commit, and what follows from its answer. Any broker can do it: it needs no role but compare-and-swap. A move that has
begun is followed and finished by the controller.

How it works: decisions about many partitions are made a portion at a time from the image as it is, turned into commits
at once (so that what a commit compares is what the decision was made from) and committed. Whatever lost its
comparison is decided again. A decision that turns out unnecessary when it is made again has been carried out,
by a commit whose answer was lost or by the controller.

Invariant: (Q1) every partition asked for has an outcome: None when it is as wished, or the error that says why not.

Proved by: tests/unit/broker/test_partition_admin.py, tests/broker/test_partition_apis.py
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, TopicPartition
from martlet.broker.administration.unclean_notice import announce_unclean
from martlet.broker.services import BrokerServices
from martlet.cluster.controller_decisions import decide_requested_election, topic_rules
from martlet.cluster.liveness import BrokerStates, read_states
from martlet.cluster.partition_moves import plan_drain, plan_drain_end, plan_removal
from martlet.cluster.partition_plans import Decision, plan_partitions
from martlet.cluster.reassignment import decide_wish
from martlet.cluster.store import CommitPlan

logger = logging.getLogger(__name__)

Outcomes = dict[TopicPartition, ApiError | None]
Decide = Callable[[TopicPartition, BrokerStates], Decision | None]

_PORTION: Final = 500
_ATTEMPTS_MAX: Final = 20

_DONE_ALREADY: Final = (ErrorCode.ELECTION_NOT_NEEDED, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS)


# --- partitions


async def elect_leaders(
    broker: BrokerServices, partitions: Iterable[TopicPartition], *, unclean: bool, outcomes: Outcomes | None = None
) -> Outcomes:
    """Give each partition its preferred leader or, if none leads it and loss is accepted, any that is alive.

    `outcomes` is filled while it works, for callers that do not wait for the end.
    """
    image, layers = broker.image, broker.topic_settings.layers()

    def decide(partition: TopicPartition, states: BrokerStates) -> Decision:
        topic, record = image.topic(partition.topic), image.partition(*partition)
        if topic is None or record is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no partition {partition}")
        return decide_requested_election(topic, record, states, topic_rules(topic, layers), unclean=unclean)

    return await _carry_out(broker, partitions, decide, outcomes)


async def reassign(
    broker: BrokerServices,
    wishes: Mapping[TopicPartition, Sequence[int] | None],
    *,
    factor_may_change: bool = True,
    outcomes: Outcomes | None = None,
) -> Outcomes:
    """Begin to move each partition to the brokers wished for, or cancel its move; `outcomes` as above."""
    image, layers = broker.image, broker.topic_settings.layers()

    def decide(partition: TopicPartition, states: BrokerStates) -> Decision | None:
        wish = (partition, wishes[partition])
        return decide_wish(wish, image, states, layers, factor_may_change=factor_may_change)

    return await _carry_out(broker, wishes, decide, outcomes)


async def _carry_out(
    broker: BrokerServices, partitions: Iterable[TopicPartition], decide: Decide, outcomes: Outcomes | None
) -> Outcomes:
    outcomes = {} if outcomes is None else outcomes
    waiting = iter(dict.fromkeys(partitions))
    while portion := list(islice(waiting, _PORTION)):
        try:
            await _carry_out_portion(broker, portion, decide, outcomes)
        except ApiError as error:
            # The store cannot be reached, or others are always faster: the outcome of whatever has none yet.
            for partition in portion:
                outcomes.setdefault(partition, error)
        await asyncio.sleep(0)
    return outcomes


async def _carry_out_portion(
    broker: BrokerServices, portion: list[TopicPartition], decide: Decide, outcomes: Outcomes
) -> None:
    for attempt in range(_ATTEMPTS_MAX):
        waiting = [partition for partition in portion if partition not in outcomes]
        decisions = _decide_each(broker, waiting, decide, outcomes, is_again=attempt > 0)
        if not decisions:
            return
        for plan in list(plan_partitions(decisions, broker.image)):
            announce_unclean(plan.decisions, broker.metrics)
            if await broker.admin.commit(plan.commit):
                for decision in plan.decisions:
                    outcomes[decision.partition] = None
                    _tell(decision)
    raise _too_many_attempts()


def _decide_each(
    broker: BrokerServices, waiting: list[TopicPartition], decide: Decide, outcomes: Outcomes, *, is_again: bool
) -> list[Decision]:
    states = read_states(broker.image)
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


def _tell(decision: Decision) -> None:
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


# --- brokers


async def drain_broker(broker: BrokerServices, target: BrokerId, *, validate_only: bool = False) -> None:
    """Have a broker emptied: from now on it gets nothing new, and the controller moves away what it holds."""

    def decide() -> CommitPlan | None:
        return plan_drain(target, broker.image, read_states(broker.image), now_ms=broker.clock.now_ms())

    if await _change(broker, decide, validate_only):
        logger.info("broker %d is drained from now on", target)


async def undrain_broker(broker: BrokerServices, target: BrokerId, *, validate_only: bool = False) -> None:
    """Let a broker keep what it holds and get more again."""

    def decide() -> CommitPlan | None:
        if broker.image.broker(target) is None:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no broker {target} in this cluster")
        return plan_drain_end(target, broker.image)

    if await _change(broker, decide, validate_only):
        logger.info("broker %d is not drained any more", target)


async def remove_broker(broker: BrokerServices, target: BrokerId) -> None:
    """Forget a broker that is drained, holds nothing and has stopped."""
    for attempt in range(_ATTEMPTS_MAX):
        # When it is gone at the second look, a commit whose answer was lost did happen.
        is_gone = attempt > 0 and broker.image.broker(target) is None
        if is_gone or await broker.admin.commit(plan_removal(target, broker.image)):
            logger.info("broker %d was removed from the cluster", target)
            return
    raise _too_many_attempts()


async def _change(broker: BrokerServices, decide: Callable[[], CommitPlan | None], validate_only: bool) -> bool:
    """Commit what is decided, deciding again whenever something else was faster; False: it was so already."""
    for _ in range(_ATTEMPTS_MAX):
        plan = decide()
        if plan is None or validate_only:
            return False
        if await broker.admin.commit(plan):
            return True
    raise _too_many_attempts()


def _too_many_attempts() -> ApiError:
    return ApiError(ErrorCode.REQUEST_TIMED_OUT, f"the cluster's metadata changed {_ATTEMPTS_MAX} times in between")

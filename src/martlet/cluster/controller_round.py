"""One round of the controller: everything that is to be done now, in the order of its urgency, as commits.

Rules: pure. The controller calls this after every change of the image and when a time has come, makes the commits in
order, and does not repeat one whose comparison was lost: the next round sees why.

How it works: leaders and in-sync sets first, then moves that can end, then what brings the state of queues to its data
(`queue_pairs.py`), then moves away from drained brokers. Leaders
are brought back to preferred replicas only in a round that has nothing else to do, so that no fail-over waits for it.

Invariant: (CLS-14) a round changes each partition once at most, so its commits do not stand in each other's way.

Proved by: tests/unit/cluster/test_controller_round.py, tests/properties/test_controller.py
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from martlet.base.ids import TopicPartition
from martlet.cluster.controller_decisions import IMBALANCE_PERCENT, decide_all, decide_preferred
from martlet.cluster.image import ImageDelta, MetadataImage, PartitionChange
from martlet.cluster.liveness import BrokerStates
from martlet.cluster.partition_moves import MOVES_MAX, decide_drains
from martlet.cluster.partition_plans import PARTITIONS_PER_COMMIT, Decision, PartitionsPlan, plan_partitions
from martlet.cluster.queue_pairs import decide_pairs, plan_companions
from martlet.cluster.reassignment import decide_all_progress, is_moving, plan_topic_factor
from martlet.configs.effective import NO_LAYERS, BrokerLayers


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundOptions:
    """How the controller goes about its work."""

    partitions_per_commit: int = PARTITIONS_PER_COMMIT
    """Partitions per commit; worth lowering when commits keep losing their comparisons."""
    moves_max: int = MOVES_MAX
    imbalance_percent: int | None = IMBALANCE_PERCENT
    """How far leaders may stray; None: they are not brought back now."""


DEFAULT_OPTIONS = RoundOptions()


def asks_for_round(delta: ImageDelta) -> bool:
    """Whether a step of the image can have given the controller something to do.

    Leaders change their in-sync sets all the time; only where that may end a move does it matter here.
    """
    if delta.live or delta.brokers or delta.drains or delta.topics or delta.broker_configs or delta.subscriptions:
        return True
    return any(map(_matters, delta.partitions))


def _matters(change: PartitionChange) -> bool:
    before, after = change.before, change.after
    if after is None:
        return False
    if before is None or after.leader != before.leader or is_moving(after):
        return True
    # That replicas report their log ends matters only to an election by hand.
    return after.leader is None and replace(after, log_ends=()) != replace(before, log_ends=())


def decide_round(
    image: MetadataImage,
    states: BrokerStates,
    layers: BrokerLayers = NO_LAYERS,
    options: RoundOptions = DEFAULT_OPTIONS,
) -> list[Decision]:
    """All decisions of a round, the most urgent first."""
    decisions: dict[TopicPartition, Decision] = {}
    for decision in decide_all(image, states, layers):
        decisions[decision.partition] = decision
    for decision in decide_all_progress(image, states, layers):
        decisions.setdefault(decision.partition, decision)
    for decision in decide_pairs(image, states, layers, decisions):
        decisions.setdefault(decision.partition, decision)
    if states.draining:
        for decision in decide_drains(image, states, layers, moves_max=options.moves_max):
            decisions.setdefault(decision.partition, decision)
    if not decisions and options.imbalance_percent is not None:
        for decision in decide_preferred(image, states, layers, limit_percent=options.imbalance_percent):
            decisions[decision.partition] = decision
    return list(decisions.values())


def plan_round(
    image: MetadataImage,
    states: BrokerStates,
    layers: BrokerLayers = NO_LAYERS,
    options: RoundOptions = DEFAULT_OPTIONS,
) -> Iterator[PartitionsPlan]:
    """The commits of a round; nothing comes when nothing is to be done."""
    yield from plan_partitions(decide_round(image, states, layers, options), image, options.partitions_per_commit)
    touched: set[str] = set()
    for plan in plan_companions(image, states, layers):
        touched.update(plan.commit.puts)
        yield plan
    for topic in image.topics():
        factor = plan_topic_factor(topic, image.partitions(topic.name))
        if factor is not None and touched.isdisjoint(factor.puts):
            yield PartitionsPlan(factor, ())

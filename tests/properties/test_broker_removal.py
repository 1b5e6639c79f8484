"""Topics, moves, draining and removal, decided from images of any age: no partition ever names a removed broker."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from martlet.base.errors import ApiError
from martlet.base.ids import BrokerId, TopicPartition
from martlet.cluster.image import MetadataImage
from martlet.cluster.liveness import read_states
from martlet.cluster.partition_moves import plan_drain, plan_drain_end, plan_removal
from martlet.cluster.partition_plans import plan_partitions
from martlet.cluster.reassignment import decide_wish
from martlet.cluster.store import CommitPlan
from martlet.cluster.topic_decisions import (
    TopicDefaults,
    TopicWish,
    design_growth,
    design_topic,
    plan_growth,
    plan_topic,
)
from tests.unit.cluster.controlled_cluster import ControlledCluster
from tests.unit.cluster.images import topic_id

_BROKERS = (1, 2, 3)
_IMAGES_MAX = 4
_KINDS = (
    *("start", "show", "lose", "lose", "drain", "drain", "undrain", "remove", "remove"),
    *("topic", "topic", "grow", "move", "move", "cancel", "round", "catch up"),
)
_STEPS = st.lists(st.tuples(st.sampled_from(_KINDS), st.sampled_from(_BROKERS), st.integers(0, 3)), max_size=40)


class _Run:
    """A cluster, the images that some broker still decides from, and one step after the other."""

    def __init__(self) -> None:
        self.cluster = ControlledCluster(dict.fromkeys(_BROKERS))
        self.images: list[MetadataImage] = [self.cluster.snapshot()]
        self.made = 0

    def step(self, kind: str, broker: int, choice: int) -> None:
        image = self.images[choice % len(self.images)]
        try:
            plans = self._plans(kind, BrokerId(broker), choice, image)
        except ApiError:
            return
        for plan in plans:
            if plan is None or not self.cluster.offer(plan):
                break
        self.images = [*self.images[1 - _IMAGES_MAX :], self.cluster.snapshot()]

    def _plans(self, kind: str, broker: BrokerId, choice: int, image: MetadataImage) -> Any:
        cluster = self.cluster
        record = cluster.image.broker(broker)
        if kind == "start" or (kind == "show" and record is not None):
            cluster.start(broker) if kind == "start" else cluster.show(broker)
        elif kind == "lose":
            cluster.commit(CommitPlan(deletes=(f"live/{broker}",)))
        elif kind == "drain":
            return [plan_drain(broker, image, read_states(image), now_ms=0)]
        elif kind == "undrain":
            return [plan_drain_end(broker, image)]
        elif kind == "remove":
            return [plan_removal(broker, image)]
        elif kind in ("topic", "grow", "move", "cancel"):
            return self._partition_plans(kind, broker, choice, image)
        elif kind == "round":
            cluster.round()
        elif kind == "catch up":
            cluster.catch_up()
        return []

    def _partition_plans(self, kind: str, broker: BrokerId, choice: int, image: MetadataImage) -> Any:
        if kind == "topic":
            self.made += 1
            wish = TopicWish(name=f"t{self.made}", partition_count=2, replication_factor=1 + choice % 3)
            return [plan_topic(design_topic(wish, image, TopicDefaults(), topic_id=topic_id(self.made), now_ms=0))]
        topics = image.topics()
        if not topics:
            return []
        topic = topics[choice % len(topics)]
        if kind == "grow":
            design = design_growth(topic, image, TopicDefaults(), partition_count=topic.partition_count + 1)
            return list(plan_growth(design))
        replicas = None if kind == "cancel" else [broker, *[other for other in _BROKERS if other != broker][:choice]]
        decision = decide_wish((TopicPartition(topic.name, 0), replicas), image, read_states(image))
        return [plan.commit for plan in plan_partitions([decision], image)] if decision is not None else []

    def check(self) -> None:
        registered = {record.id for record in self.cluster.image.brokers()}
        for topic, partition in self.cluster.partitions():
            assert registered.issuperset(partition.replicas), (
                f"{topic.name}-{partition.partition}: {partition.replicas}"
            )


@given(steps=_STEPS)
@settings(deadline=None, max_examples=300)
def test_cls_20_cls_45_no_partition_ever_names_a_broker_that_was_removed(steps: list[tuple[str, int, int]]) -> None:
    run = _Run()
    for step in steps:
        run.step(*step)
        run.check()

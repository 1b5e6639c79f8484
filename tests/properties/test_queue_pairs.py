"""Pairs of data and queue state in random clusters: whatever happened, in the end each pair is led by one broker."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from martlet.cluster.controller_decisions import has_leader
from martlet.cluster.keys import subscription_key
from martlet.cluster.queue_pairs import companion_of
from martlet.cluster.records import SubscriptionRecord, encode_record
from martlet.cluster.store import CommitPlan
from tests.properties.test_controller import Controllers


class Pairs(Controllers):
    """The same faults, moves and old controllers, with subscriptions of some of the topics."""

    @rule(number=st.integers(0, 2))
    def a_topic_is_subscribed_to(self, number: int) -> None:
        record = SubscriptionRecord(f"s{number}", f"id{number}", (f"t{number}",))
        self.cluster.offer(CommitPlan({}, {subscription_key(record.name): encode_record(record)}))

    def teardown(self) -> None:
        super().teardown()
        image, states = self.cluster.image, self.cluster.states
        subscribed = {topic for record in image.subscriptions().values() for topic in record.topics}
        for topic in image.topics():
            if topic.name not in subscribed:
                continue
            pairs = image.partitions(topic.name)
            companion = companion_of(image, topic)
            if companion is None:
                assert not all(has_leader(partition, states) for partition in pairs), f"{topic.name} has no companion"
                continue
            for data, state in zip(pairs, image.partitions(companion.name), strict=False):
                if has_leader(data, states) and has_leader(state, states):
                    assert data.leader == state.leader, f"two brokers lead a pair: {data} {state}"
                    assert set(data.replicas) == set(state.replicas), f"a pair lies apart: {data} {state}"


TestPairs = Pairs.TestCase
TestPairs.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)

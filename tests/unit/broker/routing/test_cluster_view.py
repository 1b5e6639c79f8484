"""Which brokers are named to a client, under which addresses, and who counts as a leader."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from martlet.base.addresses import Address
from martlet.base.ids import BrokerId
from martlet.broker.ground.listeners import ListenerOptions
from martlet.broker.ground.request import Link
from martlet.broker.routing.cluster_view import (
    ClusterView,
    leader_of,
    present_brokers,
)
from martlet.cluster.broker_decisions import Registration, plan_registration
from martlet.cluster.image import MetadataImage
from martlet.cluster.keys import CONTROLLER_KEY, INCARNATION_COUNTER_KEY, broker_key
from martlet.cluster.liveness import plan_controller_role
from martlet.cluster.records import Endpoint
from martlet.cluster.store import CommitPlan
from tests.unit.cluster.controlled_cluster import ControlledCluster

_LINK = Link(Address("10.0.0.9", 5), Address("10.0.0.1", 9092))


class _Cluster(ControlledCluster):
    """Brokers that listen somewhere."""

    listeners: Mapping[int, Sequence[str]] = {}
    """The listeners of those brokers that have others than `kafka`."""

    def start(self, broker: int, *, clean: bool = False, same_logs: bool = False) -> None:
        endpoints = [
            Endpoint(name, f"host-{broker}", 9090 + broker + 10_000 * position)
            for position, name in enumerate(self.listeners.get(broker, ("kafka",)))
        ]
        plan = plan_registration(
            Registration(
                id=BrokerId(broker), endpoints=endpoints, rack=self.racks[broker], clean=clean, same_logs=same_logs
            ),
            cluster=self.store.entries.get("cluster/id"),
            broker=self.store.entries.get(broker_key(BrokerId(broker))),
            counter=self.store.entries.get(INCARNATION_COUNTER_KEY),
            new_cluster_id="c",
            now_ms=0,
        )
        self.commit(plan.commit)
        self.running.add(broker)
        self.show(broker)

    def seen_by(self, broker: int = 1) -> ClusterView:
        return _view(self.image, broker)


def _view(image: MetadataImage, broker: int) -> ClusterView:
    return ClusterView(image, BrokerId(broker), may_act=lambda: True, rack="a")


def _cluster() -> _Cluster:
    return _Cluster({1: "a", 2: "b", 3: None})


def test_others_are_named_by_what_they_registered_and_this_broker_by_what_the_client_reached() -> None:
    found = _cluster().seen_by(1).nodes(_LINK)
    assert [(node.id, str(node.address), node.rack, node.is_fenced) for node in found] == [
        (1, "10.0.0.1:9092", "a", False),
        (2, "host-2:9092", "b", False),
        (3, "host-3:9093", None, False),
    ]


def test_a_broker_that_is_not_alive_is_named_only_on_request_and_as_fenced() -> None:
    cluster = _cluster()
    cluster.stop(2)
    seat = cluster.seen_by(1)
    assert [node.id for node in seat.nodes(_LINK)] == [1, 3]
    assert [(node.id, node.is_fenced) for node in seat.nodes(_LINK, with_fenced=True)] == [
        (1, False),
        (2, True),
        (3, False),
    ]
    assert [node.id for node in seat.nodes(_LINK, besides={BrokerId(2)})] == [1, 2, 3]
    assert BrokerId(2) not in seat.possible_leaders(_LINK)
    assert seat.address_of(BrokerId(2), _LINK) is None
    assert seat.address_of(BrokerId(3), _LINK) == Address("host-3", 9093)
    assert seat.address_of(BrokerId(9), _LINK) is None


def test_a_broker_that_has_lost_its_lease_still_tells_of_itself() -> None:
    cluster = _cluster()
    cluster.lose_lease(1)
    assert [node.id for node in cluster.seen_by(1).nodes(_LINK)] == [1, 2, 3]
    assert [node.id for node in cluster.seen_by(2).nodes(_LINK)] == [2, 3]
    unknown = _view(MetadataImage(), 1)
    assert [(node.id, node.rack) for node in unknown.nodes(_LINK)] == [(1, "a")]


def test_a_leader_is_named_only_while_the_very_process_that_was_elected_is_there() -> None:
    cluster = _cluster()
    cluster.make_topic("t", [[2, 3]])
    present = present_brokers(cluster.image, BrokerId(1))
    assert leader_of(cluster.partition(), present) == 2
    cluster.lose_lease(2)
    assert leader_of(cluster.partition(), present_brokers(cluster.image, BrokerId(1))) is None
    cluster.start(2)
    assert leader_of(cluster.partition(), present_brokers(cluster.image, BrokerId(1))) is None
    cluster.settle()
    assert leader_of(cluster.partition(), present_brokers(cluster.image, BrokerId(1))) == 3


def test_the_controller_is_the_holder_of_the_role_while_it_is_alive_else_the_broker_that_is_asked() -> None:
    cluster = _cluster()
    assert cluster.seen_by(2).controller(_LINK) == 2
    record = cluster.image.broker(BrokerId(3))
    assert record is not None
    plan = plan_controller_role(record, cluster.image)
    assert plan is not None
    cluster.commit(plan)
    assert cluster.seen_by(2).controller(_LINK) == 3
    cluster.lose_lease(3)
    assert cluster.seen_by(2).controller(_LINK) == 2
    cluster.commit(CommitPlan(deletes=(CONTROLLER_KEY,)))
    assert cluster.seen_by(1).controller(_LINK) == 1


def test_a_broker_that_has_lost_touch_does_not_call_itself_a_leader_but_can_still_be_reached() -> None:
    image = _cluster().image
    assert set(_view(image, 1).possible_leaders(_LINK)) == {1, 2, 3}
    view = ClusterView(image, BrokerId(1), may_act=lambda: False)
    assert set(view.possible_leaders(_LINK)) == {2, 3}
    assert {node.id for node in view.nodes(_LINK)} == {1, 2, 3}


def test_a_client_hears_only_of_the_listener_it_came_through() -> None:
    cluster = _cluster()
    cluster.listeners = {2: ("kafka", "brokers"), 3: ("brokers",)}
    cluster.start(2)
    cluster.start(3)
    for listener, expected in {"kafka": {1, 2}, "brokers": {1, 2, 3}, "other": {1}}.items():
        link = replace(_LINK, listener=ListenerOptions(listener, Address("", 0)))
        view = cluster.seen_by(1)
        assert {node.id for node in view.nodes(link)} == expected
        assert set(view.possible_leaders(link)) == expected
    brokers = replace(_LINK, listener=ListenerOptions("brokers", Address("", 0)))
    assert cluster.seen_by(1).address_of(BrokerId(2), brokers) == Address("host-2", 19092)
    assert cluster.seen_by(1).address_of(BrokerId(3), _LINK) is None


def test_the_controller_is_one_that_the_client_can_reach() -> None:
    cluster = _cluster()
    cluster.listeners = {3: ("brokers",)}
    cluster.start(3)
    record = cluster.image.broker(BrokerId(3))
    assert record is not None
    plan = plan_controller_role(record, cluster.image)
    assert plan is not None
    cluster.commit(plan)
    assert cluster.seen_by(1).controller(_LINK) == 1


def test_the_own_address_is_the_advertised_one_of_the_listener() -> None:
    listener = ListenerOptions("kafka", Address("0.0.0.0", 9092), advertised=Address("one.example", 1))
    link = replace(_LINK, listener=listener)
    assert _cluster().seen_by(1).address_of(BrokerId(1), link) == Address("one.example", 1)

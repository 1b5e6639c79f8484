"""Looking after a real cluster with the command line and with other makers' admin clients.

The tests share a cluster and leave it whole. Growing and shrinking a cluster under load is in `test_grow.py`.
"""

import json
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import pytest
from confluent_kafka import ElectionType, Producer, TopicCollection
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

from tests.cluster.publishing import publish
from tests.cluster.running_cluster import RunningCluster
from tests.unit.cli.command_line import Ran
from tests.unit.cli.command_line import martlet as run_martlet

with warnings.catch_warnings():
    # kafka-python reads its schemas in a way Python deprecates; here warnings are errors.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient  # type: ignore[import-untyped]
    from kafka import TopicPartition as OtherPlace

Martlet: TypeAlias = Callable[..., Ran]

RACKS = {number: {"rack": f"rack-{number}"} for number in (1, 2, 3)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("administration")
    with RunningCluster(3, directory=directory, direct=True, own_settings=RACKS) as running:
        yield running


@pytest.fixture
def martlet(cluster: RunningCluster) -> Martlet:
    def run(*arguments: str) -> Ran:
        return run_martlet(*arguments, environment={"MARTLET_BOOTSTRAP": cluster.bootstrap_servers})

    return run


@pytest.fixture
def other_admin(cluster: RunningCluster) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap_servers.split(","))
    yield admin
    admin.close()


def done(ran: Ran) -> Ran:
    assert ran.exit_code == 0, ran.stderr
    return ran


def as_json(ran: Ran) -> Any:
    return json.loads(done(ran).stdout)


def partitions_of(martlet: Martlet, topic: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = as_json(martlet("partition", "list", topic, "--json"))
    return rows


def wait_even(cluster: RunningCluster, martlet: Martlet, topic: str, leaders: list[int]) -> None:
    def so() -> bool:
        return [row["leader"] for row in partitions_of(martlet, topic)] == leaders

    cluster.wait_until(so, f"the leaders of {topic} to be {leaders}")


# --- what clients hear


def test_every_broker_tells_of_all_brokers_with_their_addresses_and_racks(
    cluster: RunningCluster, other_admin: KafkaAdminClient
) -> None:
    admin = cluster.admin()  # it must outlive its answers
    described = admin.describe_cluster().result(10)
    listed = {(node.id, f"{node.host}:{node.port}", node.rack) for node in described.nodes}
    assert listed == {(number, cluster.servers_of(number), f"rack-{number}") for number in (1, 2, 3)}
    assert described.controller.id in (1, 2, 3)
    also = other_admin.describe_cluster()
    assert {node["broker_id"] for node in also["brokers"]} == {1, 2, 3}
    assert also["controller_id"] == described.controller.id


def test_a_new_topic_has_a_replica_in_each_rack_and_even_leaders(cluster: RunningCluster, martlet: Martlet) -> None:
    done(martlet("topic", "create", "spread", "--partitions", "6", "--replication", "3"))
    rows = partitions_of(martlet, "spread")
    assert all(sorted(row["replicas"]) == [1, 2, 3] for row in rows)
    assert Counter(row["leader"] for row in rows) == {1: 2, 2: 2, 3: 2}


def test_more_replicas_than_brokers_are_refused_in_plain_words(cluster: RunningCluster, martlet: Martlet) -> None:
    ran = martlet("topic", "create", "too-many", "--replication", "4")
    assert ran.exit_code == 2
    assert "a replication factor of 4 is not possible: there are 3 brokers" in ran.stderr


# --- a broker that is away


def test_a_missing_broker_shows_and_goes_again(cluster: RunningCluster, martlet: Martlet) -> None:
    done(martlet("topic", "create", "seen", "--partitions", "3", "--replication", "3"))
    cluster.stop(2)
    cluster.wait_until(
        lambda: 2 not in cluster.metadata(from_broker=1).brokers and 2 not in cluster.metadata(from_broker=3).brokers,
        "broker 2 to be gone",
    )
    assert all(row["leader"] in (1, 3) for row in partitions_of(martlet, "seen"))
    status = as_json(martlet("cluster", "status", "--json"))
    assert [(broker["id"], broker["running"]) for broker in status["brokers"]] == [(1, True), (2, False), (3, True)]
    assert status["partitions_under_replicated"] >= 3
    checked = martlet("cluster", "status", "--check")
    assert checked.exit_code == 8
    assert "2 running, 1 not running" in checked.stdout
    assert "not in sync: 2" in checked.stdout
    # A topic can be made meanwhile: the missing broker gets its copies when it is back.
    done(martlet("topic", "create", "meanwhile", "--partitions", "2", "--replication", "3"))
    assert all(2 not in row["in_sync"] and 2 in row["replicas"] for row in partitions_of(martlet, "meanwhile"))
    refused = martlet("partition", "move", "seen", "--to", "1,2")
    assert (refused.exit_code, "broker 2 is not running" in refused.stderr) == (6, True)
    cluster.start(2)
    cluster.wait_in_sync("seen", "meanwhile")
    cluster.wait_until(lambda: martlet("cluster", "status", "--check").exit_code == 0, "all to be well again")
    done(martlet("partition", "elect", "--all-topics"))


# --- elections


def strayed(cluster: RunningCluster, martlet: Martlet, topic: str) -> None:
    """A topic preferably led by broker 1 that broker 2 leads."""
    done(martlet("topic", "create", topic, "--partitions", "1", "--replication", "1"))
    done(martlet("partition", "move", topic, "--replicas", "2"))
    done(martlet("partition", "move", topic, "--replicas", "2,1"))
    admin = KafkaAdminClient(bootstrap_servers=cluster.servers_of(3))
    # Only the order changes, which elects no leader.
    assert admin.alter_partition_reassignments({OtherPlace(topic, 0): [1, 2]}) == {OtherPlace(topic, 0): None}
    admin.close()
    (row,) = partitions_of(martlet, topic)
    assert (row["leader"], row["replicas"]) == (2, [1, 2])


def test_the_command_line_elects_preferred_leaders(cluster: RunningCluster, martlet: Martlet) -> None:
    strayed(cluster, martlet, "by-command")
    elected = as_json(martlet("partition", "elect", "by-command", "--json"))
    assert elected == {"elected": [{"topic": "by-command", "partition": 0}], "unneeded": 0, "refused": []}
    wait_even(cluster, martlet, "by-command", [1])
    assert "1 needed none" in done(martlet("partition", "elect", "by-command:0")).stderr


def test_librdkafka_elects_preferred_leaders(cluster: RunningCluster, martlet: Martlet) -> None:
    strayed(cluster, martlet, "by-librdkafka")
    place = Place("by-librdkafka", 0)
    admin = cluster.admin()
    assert admin.elect_leaders(ElectionType.PREFERRED, [place]).result(10) == {place: None}
    wait_even(cluster, martlet, "by-librdkafka", [1])
    again = admin.elect_leaders(ElectionType.PREFERRED, [place]).result(10)[place]
    assert again is not None
    assert again.name() == "ELECTION_NOT_NEEDED"
    unclean = admin.elect_leaders(ElectionType.UNCLEAN, [place]).result(10)[place]
    assert "has a leader" in str(unclean)


def test_kafka_python_elects_preferred_leaders(
    cluster: RunningCluster, martlet: Martlet, other_admin: KafkaAdminClient
) -> None:
    strayed(cluster, martlet, "by-kafka-python")
    other_admin.elect_leaders(0, {"by-kafka-python": [0]})
    wait_even(cluster, martlet, "by-kafka-python", [1])


# --- moves


def test_a_dry_run_shows_the_moves_and_changes_nothing(cluster: RunningCluster, martlet: Martlet) -> None:
    done(martlet("topic", "create", "dry", "--partitions", "4", "--replication", "1"))
    before = partitions_of(martlet, "dry")
    shown = done(martlet("partition", "move", "dry", "--to", "3", "--dry-run"))
    assert shown.stdout.splitlines()[0].split() == ["TOPIC", "PARTITION", "FROM", "TO", "COPIED", "TO"]
    assert "nothing was changed" in shown.stderr
    plan = as_json(martlet("partition", "move", "dry", "--to", "3", "--dry-run", "--json"))
    assert (plan["dry_run"], plan["selected"]) == (True, 4)
    assert all(one["to"] == [3] for one in plan["moves"])
    assert partitions_of(martlet, "dry") == before


def test_partitions_move_with_their_messages_and_leaders(cluster: RunningCluster, martlet: Martlet) -> None:
    done(martlet("topic", "create", "moved", "--partitions", "6", "--replication", "1"))
    publish(cluster, "moved", 600, keyed=True)
    ran = done(martlet("partition", "move", "moved", "--replication", "2", "--at-once", "2"))
    assert "moved 6 partitions in" in ran.stderr
    rows = partitions_of(martlet, "moved")
    assert all(len(row["replicas"]) == len(row["in_sync"]) == 2 for row in rows)
    assert Counter(row["leader"] for row in rows) == {1: 2, 2: 2, 3: 2}
    assert "nothing to do: 6 partitions" in done(martlet("partition", "move", "moved", "--replication", "2")).stderr
    done(martlet("partition", "move", "moved", "--to", "3", "--replication", "1"))
    assert {tuple(row["replicas"]) for row in partitions_of(martlet, "moved")} == {(3,)}
    counted = as_json(martlet("topic", "list", "--counts", "--json"))
    assert [topic["messages"] for topic in counted if topic["name"] == "moved"] == [600]
    admin = cluster.admin()
    described = admin.describe_topics(TopicCollection(["moved"]))["moved"].result(10)
    assert {replica.id for partition in described.partitions for replica in partition.replicas} == {3}


def test_a_move_is_throttled_and_its_rate_changed_while_it_runs(cluster: RunningCluster, martlet: Martlet) -> None:
    done(martlet("topic", "create", "slowly", "--partitions", "1", "--replication", "1"))
    done(martlet("partition", "move", "slowly", "--replicas", "1"))
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for _ in range(40):
        producer.produce("slowly", b"x" * 100_000)
    assert producer.flush(30) == 0
    begun = done(martlet("partition", "move", "slowly", "--replicas", "2", "--throttle", "200000", "--no-wait"))
    assert "200,000 bytes per second" in begun.stderr

    def is_moving() -> bool:
        return partitions_of(martlet, "slowly")[0]["moving_to"] is not None

    began = time.monotonic()
    while time.monotonic() < began + 5:
        assert is_moving(), "4 MB take 20 s at this rate"
        time.sleep(0.5)
    assert cluster.brokers[2].log_size("slowly-0") < 3_000_000
    again = done(martlet("partition", "move", "slowly", "--replicas", "2", "--throttle", "0"))
    assert "no limit" in again.stderr
    cluster.wait_until(lambda: not is_moving(), "the move to end without a throttle")
    assert time.monotonic() < began + 18, "it did not go on at the old rate"
    quick = done(martlet("partition", "move", "slowly", "--replicas", "3", "--throttle", "100000000"))
    assert "moved 1 partition" in quick.stderr
    admin = cluster.admin()
    for resource in (ConfigResource("topic", "slowly"), ConfigResource("broker", "3")):
        (described,) = admin.describe_configs([resource]).values()
        left = {name for name, entry in described.result(10).items() if "throttled" in name and not entry.is_default}
        assert not left, "the command takes away what it has set"


def test_a_move_to_a_broker_that_is_away_is_listed_and_cancelled(
    cluster: RunningCluster, martlet: Martlet, other_admin: KafkaAdminClient
) -> None:
    controller = other_admin.describe_cluster()["controller_id"]
    here, away = [number for number in (1, 2, 3) if number != controller]
    done(martlet("topic", "create", "stuck", "--partitions", "2", "--replication", "1"))
    done(martlet("partition", "move", "stuck", "--replicas", str(here)))
    cluster.stop(away)
    wishes = {OtherPlace("stuck", index): [away] for index in (0, 1)}
    assert set(other_admin.alter_partition_reassignments(wishes).values()) == {None}
    listed = other_admin.list_partition_reassignments()
    assert listed[OtherPlace("stuck", 0)]["adding_replicas"] == [away]
    assert listed[OtherPlace("stuck", 0)]["removing_replicas"] == [here]
    rows = as_json(martlet("partition", "list", "--moving", "--json"))
    assert [(row["topic"], row["partition"], row["moving_to"]) for row in rows] == [
        ("stuck", 0, [away]),
        ("stuck", 1, [away]),
    ]
    assert f"moving to {away}" in done(martlet("partition", "list", "stuck")).stdout
    assert set(other_admin.alter_partition_reassignments({OtherPlace("stuck", 0): None}).values()) == {None}
    assert "cancelled 1 move" in done(martlet("partition", "move", "stuck", "--cancel")).stderr
    assert "none of these is moving" in done(martlet("partition", "move", "stuck", "--cancel")).stderr
    assert {tuple(row["replicas"]) for row in partitions_of(martlet, "stuck")} == {(here,)}
    cluster.start(away)
    cluster.wait_until_all_serve()


# --- draining


def test_a_broker_is_drained_taken_back_and_filled_again(cluster: RunningCluster, martlet: Martlet) -> None:
    for name in ("drained-1", "drained-2"):
        done(martlet("topic", "create", name, "--partitions", "3", "--replication", "1"))
    names = [topic["name"] for topic in as_json(martlet("topic", "list", "--internal", "--json"))]
    refused = martlet("cluster", "drain", "3")
    if any(len(row["replicas"]) == 3 for name in names for row in partitions_of(martlet, name)):
        # With three copies each, two brokers are too few; that is said before anything begins.
        assert (refused.exit_code, "only 2 other brokers" in refused.stderr) == (5, True)
        done(martlet("partition", "move", "--all-topics", "--replication", "2"))
        done(martlet("cluster", "drain", "3"))
    status = as_json(martlet("cluster", "status", "--json"))
    (third,) = [broker for broker in status["brokers"] if broker["id"] == 3]
    assert (third["draining"], third["replicas"]) == (True, 0)
    assert martlet("cluster", "remove", "3", "--yes").exit_code == 5
    conflict = martlet("partition", "move", "drained-1", "--to", "3")
    assert (conflict.exit_code, "being drained" in conflict.stderr) == (5, True)
    done(martlet("topic", "create", "elsewhere", "--partitions", "4", "--replication", "2"))
    assert all(3 not in row["replicas"] for row in partitions_of(martlet, "elsewhere"))
    done(martlet("cluster", "undrain", "3"))
    done(martlet("partition", "move", "--all-topics"))
    status = as_json(martlet("cluster", "status", "--json"))
    held = [broker["replicas"] for broker in status["brokers"]]
    assert max(held) - min(held) <= 1

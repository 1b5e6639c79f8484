"""A cluster grows from one broker to three under load, moves everything, and lets its first broker go."""

import json
import random
import subprocess
import sys
from typing import Any

import pytest
from bench.chaos.clients import IdempotentPublisher, Reader, Target, read_back
from confluent_kafka import Consumer, TopicPartition
from sim.history_checker import History

from tests.cluster.running_cluster import RunningCluster

_TOPIC = "orders"
_PARTITIONS = 4
_GROUP = "billing"
_COMMAND_SECONDS_MAX = 90


def martlet(cluster: RunningCluster, *arguments: str) -> Any:
    """Run the command line as an operator would; what it prints as JSON."""
    done = subprocess.run(
        [
            *(sys.executable, "-c", "from martlet.cli.main import main; main()"),
            *(*arguments, "--json", "--bootstrap", cluster.bootstrap_servers),
        ],
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, f"martlet {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


def holders(cluster: RunningCluster, topic: str) -> list[set[int]]:
    return [set(partition.replicas) for partition in cluster.metadata(topic).topics[topic].partitions.values()]


def group_consumer(cluster: RunningCluster) -> Consumer:
    return Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": _GROUP, "log_level": 0})


@pytest.mark.timeout(300)
def test_a_cluster_grows_and_lets_its_first_broker_go_under_load() -> None:
    history = History()
    with RunningCluster(1, default_replication_factor=1) as cluster:
        cluster.create_topic(_TOPIC, partitions=_PARTITIONS, replication=1)
        target = Target(cluster.bootstrap_servers, _TOPIC, _PARTITIONS, history)
        publishers = [
            IdempotentPublisher(f"producer-{number}", target, random.Random(number), per_second=100)
            for number in range(2)
        ]
        reader = Reader("reader", target, random.Random(9), rack="")
        workers = [*(publisher.worker for publisher in publishers), reader.worker]
        for worker in workers:
            worker.start()
        committing = group_consumer(cluster)
        committing.commit(offsets=[TopicPartition(_TOPIC, 0, 7)], asynchronous=False)
        committing.close()

        cluster.add_broker()
        cluster.add_broker()
        cluster.wait_until_all_serve()
        target.servers = cluster.bootstrap_servers  # clients that begin again later must not know the first alone
        martlet(cluster, "partition", "move", "--all-topics", "--replication", "3")
        assert holders(cluster, _TOPIC) == [{1, 2, 3}] * _PARTITIONS
        assert all(found == {1, 2, 3} for found in holders(cluster, "__consumer_offsets"))
        cluster.wait_in_sync(_TOPIC)

        martlet(cluster, "partition", "move", "--all-topics", "--replication", "2")
        martlet(cluster, "cluster", "drain", "1")
        assert holders(cluster, _TOPIC) == [{2, 3}] * _PARTITIONS
        cluster.stop(1)
        martlet(cluster, "cluster", "remove", "1", "--yes")
        cluster.forget(1)
        target.servers = cluster.bootstrap_servers
        status = martlet(cluster, "cluster", "status")
        assert [broker["id"] for broker in status["brokers"]] == [2, 3]
        assert status["problems"] == []

        before = [dict(publisher.acknowledged_in) for publisher in publishers]
        cluster.wait_until(
            lambda: all(
                publisher.acknowledged_in[index] > earlier.get(index, 0)
                for publisher, earlier in zip(publishers, before, strict=True)
                for index in range(_PARTITIONS)
            ),
            "every producer to publish to every partition without the first broker",
        )
        for worker in workers:
            worker.ask_to_stop()
        for worker in workers:
            worker.join()
        assert not [broker for broker in cluster.brokers.values() if not broker.is_running]

        read_back(Target(cluster.bootstrap_servers, _TOPIC, _PARTITIONS, history))
        assert history.judge() == []
        assert history.acknowledged_count > 1_000
        committed = group_consumer(cluster)
        assert [one.offset for one in committed.committed([TopicPartition(_TOPIC, 0)], timeout=20)] == [7]
        committed.close()

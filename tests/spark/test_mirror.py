"""Topics of one cluster in another, and nothing sent back."""

import asyncio

import pytest

from martlet.spark.pipelines.mirror import ORIGIN, MirrorError, cluster_id
from martlet.testing.running_broker import RunningBroker
from tests.spark.pipeline_runs import PipelineRuns
from tests.spark.topics import Message, Topics


def contents(topics: Topics, topic: str) -> dict[int, list[Message]]:
    return {
        partition: [message._replace(headers=tuple(message.headers)) for message in messages]
        for partition, messages in topics.contents(topic).items()
    }


def test_two_clusters_mirror_each_other_and_no_message_comes_back(
    broker: RunningBroker, topics: Topics, pipelines: PipelineRuns
) -> None:
    with RunningBroker() as other, Topics(other.bootstrap_servers) as others:
        topic = topics.new(partitions=2)
        others.new(partitions=2, name=topic)
        here = [
            Message(f"v{n}".encode(), f"k{n}".encode(), n % 2, 1_770_000_000_000 + n, (("h", b"1"),)) for n in range(20)
        ]
        there = [Message(b"from there", b"k", 1, 1_770_000_000_000)]
        topics.publish(topic, here)
        others.publish(topic, there)
        pipelines.finish("mirror", topic=topic, to_bootstrap=other.bootstrap_servers, keep_partitions=True)
        # The same brokers by another of their addresses.
        pipelines.bootstrap = other.bootstrap_servers.replace("127.0.0.1", "localhost")
        pipelines.state /= "back"
        by_name = broker.bootstrap_servers.replace("127.0.0.1", "localhost")
        pipelines.finish("mirror", topic=topic, to_bootstrap=by_name, keep_partitions=True)
        mark = (ORIGIN, asyncio.run(cluster_id(broker.bootstrap_servers)).encode())
        assert contents(others, topic) == {
            0: [message._replace(headers=(*message.headers, mark)) for message in here if message.partition == 0],
            1: there
            + [message._replace(headers=(*message.headers, mark)) for message in here if message.partition == 1],
        }
        back = there[0]._replace(headers=((ORIGIN, asyncio.run(cluster_id(other.bootstrap_servers)).encode()),))
        assert contents(topics, topic) == {0: here[0::2], 1: [*here[1::2], back]}


def test_a_cluster_is_not_mirrored_into_itself_under_the_same_names(
    broker: RunningBroker, topics: Topics, pipelines: PipelineRuns
) -> None:
    topic = topics.new()
    topics.fill(topic, 3)
    itself = broker.bootstrap_servers.replace("127.0.0.1", "localhost")
    with pytest.raises(MirrorError, match="are the same cluster; give a --prefix"):
        pipelines.finish("mirror", topic=topic, to_bootstrap=itself)
    pipelines.finish("mirror", topic=topic, to_bootstrap=itself, prefix="copy-of-")
    assert topics.values(f"copy-of-{topic}") == topics.values(topic)

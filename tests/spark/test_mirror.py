"""Topics of one cluster in another, and nothing sent back."""

from martlet.spark.pipelines.mirror import ORIGIN
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
        pipelines.bootstrap = other.bootstrap_servers
        pipelines.state /= "back"
        pipelines.finish("mirror", topic=topic, to_bootstrap=broker.bootstrap_servers, keep_partitions=True)
        mark = (ORIGIN, broker.bootstrap_servers.encode())
        assert contents(others, topic) == {
            0: [message._replace(headers=(*message.headers, mark)) for message in here if message.partition == 0],
            1: there
            + [message._replace(headers=(*message.headers, mark)) for message in here if message.partition == 1],
        }
        back = there[0]._replace(headers=((ORIGIN, other.bootstrap_servers.encode()),))
        assert contents(topics, topic) == {0: here[0::2], 1: [*here[1::2], back]}

"""kcat as Debian ships it (an older librdkafka): publish, read, list, search."""

import json
import subprocess
import time

import pytest

from tests.broker.requests import unique_topic
from tests.clients.client_behaviour import stored_codecs
from tests.clients.messages import CODECS
from tests.clients.with_confluent import ConfluentAdapter

COUNT = 10_000


def kcat(servers: str, *arguments: str, stdin: str = "") -> str:
    """Run kcat to its end; returns what it printed."""
    done = subprocess.run(
        ["kcat", "-b", servers, *arguments], input=stdin, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def new_topic(servers: str, partitions: int = 1) -> str:
    topic = unique_topic("kcat")
    ConfluentAdapter().create_topic(servers, topic, partitions)
    return topic


@pytest.mark.parametrize("compression", CODECS)
def test_ten_thousand_lines_come_back_as_they_were_published(servers: str, compression: str) -> None:
    topic = new_topic(servers, 3)
    lines = [f"key {number % 20}:value {number} with text that repeats and repeats" for number in range(COUNT)]
    kcat(servers, "-P", "-t", topic, "-K:", "-z", compression, stdin="\n".join(lines) + "\n")
    assert compression in stored_codecs(servers, topic, 3)
    printed = kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", "%p %o %k:%s\n").splitlines()
    by_partition: dict[str, list[str]] = {}
    for line in printed:
        partition, offset, content = line.split(" ", 2)
        read = by_partition.setdefault(partition, [])
        assert int(offset) == len(read)
        read.append(content)
    assert sorted(content for read in by_partition.values() for content in read) == sorted(lines)
    for read in by_partition.values():
        keys = {content.partition(":")[0] for content in read}
        assert read == [line for line in lines if line.partition(":")[0] in keys]


def test_headers_tombstones_and_times_are_kept(servers: str) -> None:
    topic = new_topic(servers)
    before = time.time_ns() // 1_000_000
    kcat(servers, "-P", "-t", topic, "-K:", "-Z", "-H", "first=1", "-H", "second=two", stdin="a:x\nb:\n")
    read = kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q", "-J").splitlines()
    first, second = (json.loads(line) for line in read)
    assert (first["key"], first["payload"], first["headers"]) == ("a", "x", ["first", "1", "second", "two"])
    assert (second["key"], second["payload"]) == ("b", None)
    assert before <= first["ts"] <= time.time_ns() // 1_000_000


def test_the_list_of_topics_shows_brokers_and_partitions(servers: str) -> None:
    topic = new_topic(servers, 3)
    listed = json.loads(kcat(servers, "-L", "-J", "-t", topic))
    assert [node["name"] for node in listed["brokers"]] == [servers]
    (found,) = listed["topics"]
    assert (found["topic"], len(found["partitions"])) == (topic, 3)
    assert topic in kcat(servers, "-L")


def test_reading_starts_at_an_offset_or_a_time(servers: str) -> None:
    topic = new_topic(servers)
    kcat(servers, "-P", "-t", topic, stdin="\n".join(map(str, range(10))) + "\n")
    time.sleep(0.05)
    between = time.time_ns() // 1_000_000
    time.sleep(0.05)
    kcat(servers, "-P", "-t", topic, stdin="\n".join(map(str, range(10, 20))) + "\n")
    read = ("-C", "-t", topic, "-e", "-q", "-p", "0")
    assert kcat(servers, *read, "-o", "7").split() == [str(n) for n in range(7, 20)]
    assert kcat(servers, *read, "-o", "-3").split() == ["17", "18", "19"]
    assert kcat(servers, *read, "-o", f"s@{between}").split() == [str(n) for n in range(10, 20)]
    assert kcat(servers, "-Q", "-t", f"{topic}:0:{between}").split() == [topic, "[0]", "offset", "10"]


def test_idempotent_publishing_works(servers: str) -> None:
    topic = new_topic(servers)
    lines = "".join(f"{number}\n" for number in range(5000))
    kcat(servers, "-P", "-t", topic, "-X", "enable.idempotence=true", stdin=lines)
    assert kcat(servers, "-C", "-t", topic, "-o", "beginning", "-e", "-q") == lines

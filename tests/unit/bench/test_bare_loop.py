"""The bare loop answers every waiting fetch, in whichever order the loop sees what has arrived."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.bare_loop import BareServer

FRAME = memoryview(bytes(16))


class Client(asyncio.Transport):
    """Keeps what is written to it."""

    def __init__(self) -> None:
        super().__init__()
        self.answers: list[int] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.answers.append(len(data))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[BareServer]:
    bare = BareServer(str(tmp_path), answer_bytes=20, delivery_bytes=50, sync=False)
    yield bare
    bare.close()


def test_a_publish_answers_the_fetch_that_waits(server: BareServer) -> None:
    publisher, reader = Client(), Client()
    server.fetch(reader)
    server.publish(publisher, FRAME)
    assert (publisher.answers, reader.answers) == ([20], [50])


def test_a_publish_that_overtook_the_next_fetch_answers_it_at_once(server: BareServer) -> None:
    publisher, reader = Client(), Client()
    server.fetch(reader)
    for _ in range(2):
        server.publish(publisher, FRAME)
    server.fetch(reader)
    server.fetch(reader)
    assert reader.answers == [50, 50]


def test_publishes_before_anyone_reads_answer_no_fetch(server: BareServer) -> None:
    reader = Client()
    server.publish(Client(), FRAME)
    server.fetch(reader)
    assert reader.answers == []


def test_what_overtook_one_reader_answers_no_later_one(server: BareServer) -> None:
    first, second = Client(), Client()
    server.fetch(first)
    server.publish(Client(), FRAME)
    server.publish(Client(), FRAME)
    server.forget(first)
    server.fetch(second)
    assert second.answers == []

"""Mistakes on purpose: each command of `mistakes.txt` ends as that file says, from its message to its exit code.

The file is to be read from top to bottom by a person; a line that begins with `$` is a command. With
MARTLET_REWRITE_MISTAKES set, the file is written from what the commands print.
"""

import contextlib
import os
import re
import shlex
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from martlet.testing.running_broker import RunningBroker
from tests.unit.cli.command_line import martlet

GOLDEN = Path(__file__).with_name("mistakes.txt")
COMMAND = re.compile(r"^\$ martlet (.*)$", re.MULTILINE)


@pytest.fixture
def web_server() -> Iterator[str]:
    """An address that answers everything in HTTP."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(1_000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@pytest.fixture
def closed_port() -> Iterator[str]:
    """An address that refuses connections for as long as the test runs: bound, never listened at."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


def test_every_mistake_is_answered_as_written(
    broker: RunningBroker, web_server: str, closed_port: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("no JSON")
    places = {"WEB-SERVER": web_server, "CLOSED-PORT": closed_port}
    environment = {"MARTLET_BOOTSTRAP": broker.bootstrap_servers}
    for prepared in ("topic create orders", "publish orders m", "group reset billing --topic orders --to earliest"):
        assert martlet(*prepared.split(), environment=environment).exit_code == 0
    written = GOLDEN.read_text()
    answers = []
    for command in COMMAND.findall(written):
        arguments = command
        for name, address in places.items():
            arguments = arguments.replace(name, address)
        ran = martlet(*shlex.split(arguments), environment=environment)
        printed = ran.stdout + ran.stderr
        for name, address in places.items():
            printed = printed.replace(address, name)
        answers.append(f"$ martlet {command}\n{printed}(exit code {ran.exit_code})\n")
    head = written[: written.index("\n$ ") + 1]
    found = head + "\n".join(answers)
    if os.environ.get("MARTLET_REWRITE_MISTAKES"):
        GOLDEN.write_text(found)
    assert found == written
    assert len(answers) >= 30

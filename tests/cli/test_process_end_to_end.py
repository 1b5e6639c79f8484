"""`martlet up` as a process: what it prints, that it serves, how it ends."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.batch import build_batch
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, describe, now_ms, publish
from tests.broker.scrape import wait_until
from tests.cli.conftest import Martlet

COMMAND = [sys.executable, "-c", "from martlet.cli.main import main; main()"]


class Up:
    """A running `martlet up` and what it printed at its start."""

    def __init__(self, process: subprocess.Popen[str], printed: str) -> None:
        self.process = process
        self.printed = printed
        self.kafka = self._found(r"^ +Kafka +(\S+)$")
        self.operations = self._found(r"^ +operations +(\S+) ")

    def _found(self, pattern: str) -> str:
        match = re.search(pattern, self.printed, re.MULTILINE)
        assert match is not None, self.printed
        return match.group(1)

    def end(self, number: signal.Signals) -> tuple[int, str]:
        """Send a signal; returns the exit code and what was still printed to standard error."""
        self.process.send_signal(number)
        _, stderr = self.process.communicate(timeout=30)
        return self.process.returncode, stderr


@contextmanager
def running(verb: str, directory: Path, environment: dict[str, str], *flags: str) -> Iterator[Up]:
    """Start `martlet up` or `martlet broker` on free ports and wait until it says that it is up."""
    arguments = [*COMMAND, verb, "--data", "data", "--kafka", "127.0.0.1:0", "--operations", "127.0.0.1:0", *flags]
    process = subprocess.Popen(
        arguments, cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        last = "Ctrl-C stops it.\n" if verb == "up" else "data"
        printed = ""
        while last not in printed:
            line = process.stdout.readline()
            assert line, f"it ended: {process.stderr.read() if process.stderr else ''}"
            printed += line
        yield Up(process, printed)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def client(clean_environment: dict[str, str], tmp_path: Path) -> Callable[..., str]:
    def run(kafka: str, *arguments: str) -> str:
        environment = clean_environment | {"MARTLET_BOOTSTRAP": kafka}
        return subprocess.run(
            [*COMMAND, *arguments],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            cwd=tmp_path,
            timeout=60,
        ).stdout

    return run


def test_up_prints_where_to_connect_serves_and_ends_cleanly(
    clean_environment: dict[str, str], tmp_path: Path, client: Callable[..., str]
) -> None:
    with running("up", tmp_path, clean_environment) as up:
        assert up.printed.startswith("Martlet 0.")
        commands = up.printed.split("In another terminal:\n")[1].splitlines()[:-1]
        answers = [
            subprocess.run(
                command, shell=True, cwd="/", env=clean_environment, capture_output=True, text=True, timeout=60
            )
            for command in commands
        ]
        assert [answer.returncode for answer in answers] == [0, 0], answers
        assert answers[-1].stdout == "my first message\n"
        with urllib.request.urlopen(f"{up.operations}/healthz", timeout=10) as answer:
            assert answer.status == 200
        exit_code, stderr = up.end(signal.SIGTERM)
        assert exit_code == 0
        assert stderr.endswith("stopped cleanly\n")
    with running("up", tmp_path, clean_environment) as again:
        assert client(again.kafka, "consume", "hello") == "my first message\n"
        assert again.end(signal.SIGINT)[0] == 0


def test_a_broker_that_compacts_answers_without_waiting_for_the_interpreter(
    clean_environment: dict[str, str], tmp_path: Path
) -> None:
    """A thread that computes gives the interpreter away once in a while; an answer needs it several times."""
    records = [(now_ms(), b"key %d" % number, b"value", ()) for number in range(10_000)]
    batch = build_batch(records)
    settings = ("--set", "cleaner_interval_ms=1000", "--set", "checkpoint_interval_ms=100")
    waits: list[float] = []
    with running("broker", tmp_path, clean_environment, *settings) as up, RawClient(up.kafka) as client:
        topic = create_topic(
            client, cleanup_policy="compact", segment_bytes="1000000", min_cleanable_dirty_ratio="0.01"
        )
        for _ in range(60):
            assert publish(client, topic, batch).error_code == ErrorCode.NONE
        logs = tmp_path / "data" / "broker-1" / f"{topic}-0"
        wait_until(lambda: any(logs.glob("*.cleaned")), "compaction writes", within_seconds=60)
        while any(logs.glob("*.cleaned")):
            started = time.perf_counter()
            describe(client, topic)
            waits.append(time.perf_counter() - started)
    # Not the median: a machine with other work to do delays many answers, but hardly three of four.
    assert sorted(waits)[len(waits) // 4] < 0.004, f"{len(waits)} answers"


def test_broker_prints_addresses_only(clean_environment: dict[str, str], tmp_path: Path) -> None:
    with running("broker", tmp_path, clean_environment, "--set", "broker_id=7") as up:
        assert [line.split()[0] for line in up.printed.splitlines()] == ["Martlet", "Kafka", "operations", "data"]
        assert up.end(signal.SIGTERM)[0] == 0


def test_a_second_broker_on_the_same_port_or_data_is_refused_in_plain_words(
    clean_environment: dict[str, str], tmp_path: Path
) -> None:
    with running("up", tmp_path, clean_environment) as up:
        for flags, sentence in (
            (["--kafka", up.kafka, "--data", "other"], f"error: cannot listen on {up.kafka}: "),
            (["--kafka", "127.0.0.1:0", "--data", "data"], "in use by another broker process"),
        ):
            ran = subprocess.run(
                [*COMMAND, "up", "--operations", "127.0.0.1:0", *flags],
                capture_output=True,
                text=True,
                cwd=tmp_path,
                env=clean_environment,
                timeout=60,
            )
            assert ran.returncode in (1, 5)
            assert ran.stdout == ""
            assert sentence in ran.stderr
            assert "Traceback" not in ran.stderr


def test_settings_come_from_file_and_environment(
    clean_environment: dict[str, str], tmp_path: Path, client: Callable[..., str]
) -> None:
    (tmp_path / "martlet.toml").write_text("default_partitions = 4\n")
    with running("up", tmp_path, clean_environment | {"MARTLET_BROKER_ID": "3", "MARTLET_MISTYPED": "1"}) as up:
        client(up.kafka, "topic", "create", "t")
        assert client(up.kafka, "topic", "list").splitlines()[1].split() == ["t", "4", "1"]
        _, stderr = up.end(signal.SIGTERM)
        assert "note: the environment variable MARTLET_MISTYPED names no setting and is ignored" in stderr


def test_following_shows_new_messages_and_ends_with_ctrl_c(
    martlet: Martlet, clean_environment: dict[str, str], tmp_path: Path, broker: RunningBroker
) -> None:
    bootstrap = broker.bootstrap_servers
    martlet("topic", "create", "live")
    process = subprocess.Popen(
        [*COMMAND, "consume", "live", "--follow", "--bootstrap", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=clean_environment,
    )
    try:
        assert process.stdout is not None
        for text in ("one", "two"):
            martlet("publish", "live", text, "--create")
            assert process.stdout.readline() == f"{text}\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert process.returncode == 130
        assert stderr.strip() == "interrupted"
    finally:
        process.kill()
        process.communicate()


def test_watching_a_groups_lag_shows_it_again_and_again_until_ctrl_c(
    martlet: Martlet, clean_environment: dict[str, str], tmp_path: Path, broker: RunningBroker
) -> None:
    martlet("publish", "watched", "one", "--create")
    martlet("group", "reset", "watchers", "--topic", "watched", "--to", "earliest")
    watch = ("group", "lag", "watchers", "--watch", "--interval", "0.1", "--json")
    process = subprocess.Popen(
        [*COMMAND, *watch, "--bootstrap", broker.bootstrap_servers],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=clean_environment,
    )
    try:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["lag"] == 1
        martlet("publish", "watched", "two")
        while json.loads(process.stdout.readline())["lag"] != 2:
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert (process.returncode, stderr.strip()) == (130, "interrupted")
    finally:
        process.kill()
        process.communicate()


def test_lines_from_a_slow_pipe_are_published_as_they_come(
    martlet: Martlet, clean_environment: dict[str, str], tmp_path: Path, broker: RunningBroker
) -> None:
    bootstrap = broker.bootstrap_servers
    process = subprocess.Popen(
        [*COMMAND, "publish", "slow", "--create", "--bootstrap", bootstrap],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=clean_environment,
    )
    try:
        assert process.stdin is not None
        process.stdin.write(b"first\n")
        process.stdin.flush()
        deadline = time.monotonic() + 20
        while martlet("consume", "slow").stdout != "first\n":
            assert time.monotonic() < deadline
        # A waiting read must not keep Ctrl-C from ending the command.
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=20)
        assert process.returncode == 130
        assert b"published 1 message before this:" in stderr
    finally:
        process.kill()
        process.communicate()


def test_a_reader_that_leaves_is_no_failure(
    martlet: Martlet, clean_environment: dict[str, str], tmp_path: Path, broker: RunningBroker
) -> None:
    bootstrap = broker.bootstrap_servers
    martlet("publish", "many", "--create", stdin=b"0123456789abcdef\n" * 20_000)
    process = subprocess.Popen(
        [*COMMAND, "consume", "many", "--bootstrap", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=clean_environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == b"0123456789abcdef\n"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(timeout=30) == 0


def test_a_terminal_gets_colour_unless_told_otherwise(
    martlet: Martlet, clean_environment: dict[str, str], broker: RunningBroker
) -> None:
    import pty

    def on_terminal(extra: dict[str, str]) -> str:
        environment = clean_environment | {"TERM": "xterm", "MARTLET_BOOTSTRAP": broker.bootstrap_servers} | extra
        leader, follower = pty.openpty()
        process = subprocess.Popen([*COMMAND, "status"], stdout=follower, stderr=follower, env=environment)
        os.close(follower)
        output = b""
        while True:
            try:
                chunk = os.read(leader, 4096)
            except OSError:
                break
            if not chunk:
                break
            output += chunk
        os.close(leader)
        assert process.wait(timeout=20) == 0
        return output.decode()

    assert "\x1b[1mBROKER" in on_terminal({})
    assert "\x1b" not in on_terminal({"NO_COLOR": "1"})


def test_a_second_ctrl_c_ends_at_once_though_the_stop_hangs(clean_environment: dict[str, str], tmp_path: Path) -> None:
    code = (
        "import time, martlet.broker.app as app\n"
        "class Hanging(app.BrokerApp):\n"
        "    async def stop(self):\n"
        "        while True: time.sleep(0.1)\n"
        "app.BrokerApp = Hanging\n"
        "from martlet.cli.main import main; main()"
    )
    flags = ["broker", "--data", "data", "--kafka", "127.0.0.1:0", "--operations", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-c", code, *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=clean_environment,
    )
    try:
        assert process.stdout is not None
        assert process.stderr is not None
        while "data" not in process.stdout.readline():
            pass
        process.send_signal(signal.SIGINT)
        while "stopping; Ctrl-C again ends at once" not in process.stderr.readline():
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=20) == 130
    finally:
        process.kill()
        process.communicate()

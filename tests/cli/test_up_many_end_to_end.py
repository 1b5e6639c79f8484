"""`martlet up --brokers` and `--cluster` as processes: several brokers, a crash, a clean end, and what is refused."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-c", "from martlet.cli.main import main; main()"]
PATIENCE_S = 60
FREE_PORTS = ("--kafka", "127.0.0.1:0", "--operations", "127.0.0.1:0")


class Many:
    """A running `martlet up` with several brokers."""

    def __init__(self, process: subprocess.Popen[str], printed: str, words: Path) -> None:
        self.process = process
        self.printed = printed
        self._words = words
        table = re.findall(r"^ +(\d+) +(\S+:\d+) +http://\S+ +(\d+)$", printed, re.MULTILINE)
        self.addresses = {int(number): address for number, address, _ in table}
        self.process_ids = {int(number): int(process_id) for number, _, process_id in table}

    @property
    def words(self) -> str:
        """What it and its brokers have said so far."""
        return self._words.read_text()

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"waited for {what}\n{self.words}"
            time.sleep(0.1)

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


@contextmanager
def running(directory: Path, environment: dict[str, str], *flags: str) -> Iterator[Many]:
    words = directory / "words.txt"
    with words.open("w") as errors:
        process = subprocess.Popen(
            [*COMMAND, "up", "--data", "data", *FREE_PORTS, *flags],
            cwd=directory,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
        )
    try:
        assert process.stdout is not None
        printed = ""
        while "Ctrl-C stops it.\n" not in printed:
            line = process.stdout.readline()
            assert line, f"it ended: {words.read_text()}"
            printed += line
        yield Many(process, printed, words)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def martlet(clean_environment: dict[str, str], tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(bootstrap: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = clean_environment | {"MARTLET_BOOTSTRAP": bootstrap}
        command = [*COMMAND, *arguments]
        return subprocess.run(
            command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=PATIENCE_S, check=False
        )

    return run


def is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    return True


def test_several_brokers_serve_one_cluster_and_a_crashed_one_comes_back_where_it_was(
    clean_environment: dict[str, str],
    tmp_path: Path,
    martlet: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    with running(tmp_path, clean_environment, "--brokers", "2") as many:
        assert many.printed.startswith("Martlet 0.")
        assert "is up with 2 brokers." in many.printed
        first, second = many.addresses[1], many.addresses[2]
        assert martlet(first, "topic", "create", "t", "--partitions", "2", "--replication", "2").returncode == 0
        assert martlet(second, "publish", "t", "hello").returncode == 0
        os.kill(many.process_ids[2], signal.SIGKILL)
        many.wait_for(lambda: "broker 2 | was ended by SIGKILL; starting it again in 1 s" in many.words, "the crash")
        many.wait_for(lambda: martlet(second, "cluster", "status", "--check").returncode == 0, "broker 2 to be back")
        assert martlet(second, "consume", "t").stdout == "hello\n"
        status = martlet(first, "cluster", "status").stdout
        assert re.search(rf"^ +2 +{second} +\S+ +running", status, re.MULTILINE), status
        assert many.end(signal.SIGINT) == 0
        assert many.words.endswith("stopped cleanly\n")
        assert not any(map(is_alive, many.process_ids.values()))
    with running(tmp_path, clean_environment, "--brokers", "2") as again:
        assert martlet(again.addresses[1], "consume", "t").stdout == "hello\n"
        # A broker that is stopped by hand stays down; the last one takes the supervisor with it.
        os.kill(again.process_ids[1], signal.SIGTERM)
        again.wait_for(lambda: "broker 1 | stopped; it is not started again" in again.words, "its end")
        os.kill(again.process_ids[2], signal.SIGTERM)
        assert again.process.wait(PATIENCE_S) == 0


def test_when_the_supervisor_is_killed_its_brokers_end(clean_environment: dict[str, str], tmp_path: Path) -> None:
    with running(tmp_path, clean_environment, "--brokers", "2") as many:
        many.process.kill()
        many.process.wait()
        many.wait_for(lambda: not any(map(is_alive, many.process_ids.values())), "the brokers to end")


def test_a_broker_that_cannot_be_started_ends_them_all(clean_environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "broker-2").write_text("in the way")
    ran = subprocess.run(
        [*COMMAND, "up", "--brokers", "2", "--data", "data", *FREE_PORTS],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode not in (0, 130)
    assert "broker 2 | error: " in ran.stderr
    assert "error: broker 2 could not be started" in ran.stderr
    assert ran.stdout == ""


def test_a_play_cluster_has_an_etcd_of_its_own_and_three_copies(
    clean_environment: dict[str, str],
    tmp_path: Path,
    martlet: Callable[..., subprocess.CompletedProcess[str]],
) -> None:
    with running(tmp_path, clean_environment, "--cluster", "3") as many:
        assert "  metadata  etcd://127.0.0.1:" in many.printed
        assert (tmp_path / "data" / "etcd" / "etcd.log").stat().st_size > 0
        first = many.addresses[1]
        assert martlet(first, "publish", "hello", "world", "--create").returncode == 0
        described = martlet(first, "topic", "describe", "hello").stdout
        assert re.search(r"^replicas +3$", described, re.MULTILINE), described
        assert many.end(signal.SIGTERM) == 0
        assert many.words.endswith("stopped cleanly\n")
    with running(tmp_path, clean_environment, "--cluster", "3") as again:
        assert martlet(again.addresses[2], "consume", "hello").stdout == "world\n"


def test_brokers_and_cluster_do_not_go_together(clean_environment: dict[str, str], tmp_path: Path) -> None:
    ran = subprocess.run(
        [*COMMAND, "up", "--brokers", "2", "--cluster", "2"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=clean_environment,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 2
    assert "do not go together" in ran.stderr

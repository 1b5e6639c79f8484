"""The files that a broker keeps of itself, damaged in each way: it serves all that it holds, or says why not.

Each damaged directory is a copy of one that a broker has used, and is started as an operator starts it.
"""

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, publish_values, read_all, values_of
from tests.damage.cells import FILE_DAMAGE

_COUNT = 40
_FILES = ("broker-1/martlet.identity", "metadata.sqlite")


def _serves(address: str, topic: str) -> None:
    with RawClient(address) as client:
        assert values_of(read_all(client, topic)) == [b"%d" % number for number in range(_COUNT)]
        assert publish_values(client, topic, b"goes on") == _COUNT


def _try(data: Path, topic: str) -> None:
    """Start a broker there; it serves all, or ends with one line on what is wrong."""
    settings = {"data": data, "kafka": "127.0.0.1:0", "operations": "127.0.0.1:0", "log_format": "text"}
    command = [sys.executable, "-c", "from martlet.cli.main import main; main()", "broker"]
    command += [part for name, value in settings.items() for part in ("--set", f"{name}={value}")]
    broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert broker.stdout is not None
        address = next((line.split()[1] for line in broker.stdout if line.split()[:1] == ["Kafka"]), None)
        if address is not None:
            _serves(address, topic)
            broker.send_signal(signal.SIGTERM)
        _, said = broker.communicate(timeout=30)
    finally:
        broker.kill()
        broker.wait()
    if address is not None:
        assert broker.returncode == 0
        return
    assert broker.returncode in (1, 5), said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, said
    assert str(data) in errors[0]
    assert "Traceback" not in said


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_broker_serves_all_or_says_why_not(
    make_process: Callable[..., BrokerProcess], tmp_path: Path, ending: str
) -> None:
    process = make_process(checkpoint_interval_ms=50)
    with RawClient(process.address) as client:
        topic = create_topic(client, segment_bytes="1000")
        for number in range(_COUNT):
            publish_values(client, topic, b"%d" % number)
    time.sleep(0.3)
    getattr(process, ending)()
    faults = []
    for number, (name, damage) in enumerate((name, damage) for name in _FILES for damage in FILE_DAMAGE):
        data = tmp_path / f"copy-{number}"
        shutil.copytree(process.data, data)
        FILE_DAMAGE[damage](data / name)
        try:
            _try(data, topic)
        except AssertionError as error:
            faults.append(f"{name} {damage}, {ending}: {error}")
    assert not faults, "\n".join(faults)

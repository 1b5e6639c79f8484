"""`martlet log check` on what a real broker wrote: silent on a healthy directory, exact on a damaged one; repair."""

import json
from pathlib import Path

import pytest

from martlet.base.errors import ErrorCode
from martlet.testing.running_broker import RunningBroker
from martlet.wire.batch import iterate_batches
from tests.broker.raw_client import RawClient
from tests.broker.requests import create_topic, fetch_one, list_offset, publish_values, read_all, values_of
from tests.unit.cli.command_line import Ran
from tests.unit.cli.command_line import martlet as run_martlet

_COUNT = 60
_BAD = 20


def martlet(*arguments: str, stdin: bytes = b"") -> Ran:
    return run_martlet(*arguments, stdin=stdin, environment={})


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The directory of a broker that was stopped cleanly."""
    path = tmp_path / "data"
    with RunningBroker(data=str(path)) as broker, RawClient(broker.bootstrap_servers) as client:
        create_topic(client, name="orders")
        for number in range(_COUNT):
            publish_values(client, "orders", b"%d" % number, b"and more")
    return path


def _log(data: Path) -> Path:
    [file] = data.rglob("orders-0/*.log")
    return file


def _damage(data: Path, batch: int) -> int:
    """Flip a byte in the records of one batch; returns where that batch begins."""
    content = bytearray(_log(data).read_bytes())
    positions = [position for position, _ in iterate_batches(bytes(content))]
    content[positions[batch] + 65] ^= 0xFF
    _log(data).write_bytes(content)
    return positions[batch]


def test_nothing_is_found_in_what_a_broker_left(data: Path) -> None:
    assert martlet("log", "check", str(data)) == (0, "", f"{data}: no damage found\n")
    assert martlet("log", "check", str(data), "--json") == (0, "[]\n", "")


def test_a_fault_is_reported_with_its_place_and_its_price(data: Path) -> None:
    position = _damage(data, _BAD)
    before = {file: file.read_bytes() for file in data.rglob("*") if file.is_file()}
    ran = martlet("log", "check", str(data))
    assert ran.exit_code == 8
    assert "orders-0" in ran.stdout
    assert f"{2 * _BAD}-{2 * _BAD + 1}" in ran.stdout
    assert f"at byte {position}" in ran.stdout
    assert "1 fault found" in ran.stderr
    [finding] = json.loads(martlet("log", "check", str(data), "--json").stdout)
    assert (finding["kind"], finding["partition"], finding["position"]) == ("lost", "orders-0", position)
    assert (finding["first_offset"], finding["next_offset"]) == (2 * _BAD, 2 * _BAD + 2)
    assert {file: file.read_bytes() for file in before} == before, "a check changes nothing"


def test_repair_asks_gives_up_only_what_is_lost_and_keeps_the_files(data: Path) -> None:
    _damage(data, _BAD)
    before = _log(data).read_bytes()
    refused = martlet("log", "check", str(data), "--repair", stdin=b"n\n")
    assert refused.exit_code == 1
    assert "gives up 2 messages" in refused.stderr
    assert _log(data).read_bytes() == before
    assert martlet("log", "check", str(data), "--repair", "--yes").exit_code == 0
    assert martlet("log", "check", str(data)).exit_code == 0
    assert Path(f"{_log(data)}.damaged").read_bytes() == before
    with RunningBroker(data=str(data)) as broker, RawClient(broker.bootstrap_servers) as client:
        values = values_of(read_all(client, "orders"))
        assert values[::2] == [b"%d" % number for number in range(_COUNT) if number != _BAD]
        assert list_offset(client, "orders", -1).offset == 2 * _COUNT
        assert publish_values(client, "orders", b"goes on") == 2 * _COUNT


def test_a_lost_end_is_repaired_without_handing_offsets_out_again(data: Path) -> None:
    content = _log(data).read_bytes()
    positions = [position for position, _ in iterate_batches(content)]
    _log(data).write_bytes(content[: positions[-5]])
    for marker in data.rglob(".martlet-clean-shutdown"):
        marker.unlink()
    [finding] = json.loads(martlet("log", "check", str(data), "--json").stdout)
    assert (finding["kind"], finding["first_offset"], finding["next_offset"]) == ("end lost", 110, 120)
    assert martlet("log", "check", str(data), "--repair", "--yes").exit_code == 0
    with RunningBroker(data=str(data)) as broker, RawClient(broker.bootstrap_servers) as client:
        assert publish_values(client, "orders", b"goes on") == 2 * _COUNT
        assert values_of(read_all(client, "orders"))[-1] == b"goes on"


def test_a_directory_that_is_gone_is_named_and_its_offsets_are_not_handed_out_again(data: Path) -> None:
    directory = _log(data).parent
    for file in directory.iterdir():
        file.unlink()
    directory.rmdir()
    with RunningBroker(data=str(data)) as broker, RawClient(broker.bootstrap_servers) as client:
        assert fetch_one(client, "orders").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert martlet("log", "check", str(data), "--repair", "--yes").exit_code == 0
    with RunningBroker(data=str(data)) as broker, RawClient(broker.bootstrap_servers) as client:
        assert publish_values(client, "orders", b"goes on") == 2 * _COUNT


def test_a_directory_in_use_is_not_checked(tmp_path: Path) -> None:
    with RunningBroker(data=str(tmp_path)):
        ran = martlet("log", "check", str(tmp_path))
    assert ran.exit_code == 5
    assert "in use by another broker process" in ran.stderr


def test_a_topic_of_a_running_broker_is_read_through(data: Path) -> None:
    _damage(data, _BAD)
    with RunningBroker(data=str(data)) as broker:
        ran = martlet("log", "check", "--topic", "orders", "--bootstrap", broker.bootstrap_servers, "--json")
        [unreadable] = json.loads(ran.stdout)
        assert ran.exit_code == 8
        assert (unreadable["first_offset"], unreadable["next_offset"]) == (2 * _BAD, 2 * _BAD + 2)
        assert unreadable["what"].startswith("CORRUPT_MESSAGE")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [((), "give a directory, or --topic"), (("--topic", "orders", "--repair"), "--repair needs a directory")],
)
def test_what_makes_no_sense_is_refused(arguments: tuple[str, ...], sentence: str) -> None:
    ran = martlet("log", "check", *arguments)
    assert ran.exit_code == 2
    assert sentence in ran.stderr

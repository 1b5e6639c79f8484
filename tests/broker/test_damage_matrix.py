"""The damage matrix on a sole copy: each cell of the table happens to a topic of its own, all in one directory.

The broker always starts. Each topic is read from its start and from behind its damage, twice, the second time after
more was published and once more after another start: never a wrong offset or value, never anything skipped without an
error, and only what the cell damaged is refused. New messages never get offsets that old ones had.
`martlet.log.check` finds each fault before the start, and nothing else; afterwards every file that can be made again
has been.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from martlet.base.disk import SystemDisk
from martlet.base.errors import ErrorCode
from martlet.log.check import Finding, FindingKind, check_log_directory
from martlet.wire.batch import iterate_batches
from martlet.wire.records.record import read_records
from tests.broker.broker_process import BrokerProcess
from tests.broker.raw_client import RawClient
from tests.broker.requests import batch_of, list_offset, new_producer_id, publish
from tests.broker.scrape import unexpected_errors, wait_until
from tests.damage.cells import CELLS
from tests.damage.judge import Truth, batches_in
from tests.damage.topics import (
    MatrixTopic,
    create_topics,
    publish_rounds,
    publish_start,
    read_committed,
    read_from,
    wait_until_noted,
)


def _logs(process: BrokerProcess) -> Path:
    [directory] = [path for path in Path(process.data).iterdir() if path.name.startswith("broker-")]
    return directory


def _filled(process: BrokerProcess, topics: list[MatrixTopic], ending: str) -> None:
    """Two starts' worth of messages, and so two leader epochs; what is to be compacted is."""
    with RawClient(process.address) as client:
        create_topics(client, topics)
        producer_id = new_producer_id(client)
    _publish(process, topics, producer_id, 0)
    compacted = [topic for topic in topics if "cleanup.policy" in topic.cell.config]
    wait_until(
        lambda: all((_logs(process) / f"{topic.name}-0" / "known-gaps").exists() for topic in compacted),
        "what is to be compacted to be so",
        within_seconds=30,
    )
    process.stop()
    process.settings["cleaner_interval_ms"] = 600_000
    process.start()
    _publish(process, topics, producer_id, 1)
    wait_until_noted(_logs(process), topics)
    getattr(process, ending)()


def _publish(process: BrokerProcess, topics: Sequence[MatrixTopic], producer_id: int, start: int) -> None:
    with RawClient(process.address) as client:
        publish_start(process.address, topics, start, lambda some, n: publish_rounds(client, some, producer_id, n))


def _findings(process: BrokerProcess) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in check_log_directory(SystemDisk(), str(_logs(process))):
        found.setdefault(str(finding.partition), []).append(finding)
    return found


def _check_findings(topic: MatrixTopic, found: list[Finding]) -> Iterator[str]:
    """What is wrong with what the check says of a topic."""
    hurt = topic.hurt
    if not hurt.is_seen:
        if found:
            yield "something was found where nothing can be"
        return
    if not found:
        yield "nothing was found"
    for finding in found:
        if finding.file not in hurt.names:
            yield f"a file was blamed that is sound: {finding}"
        if hurt.position is not None and finding.position != hurt.position:
            yield f"the damage is at byte {hurt.position}: {finding}"
        if not hurt.lost and finding.kind not in (FindingKind.REBUILT, FindingKind.UNREADABLE):
            yield f"no message is lost: {finding}"
    reported = {
        offset
        for finding in found
        if finding.first_offset is not None and finding.next_offset is not None
        for offset in range(finding.first_offset, finding.next_offset)
    }
    if reported != hurt.lost:
        yield f"{sorted(hurt.lost)} are lost, and not {sorted(reported)}"


def _judge_reading(client: RawClient, topic: MatrixTopic) -> None:
    hurt, truth = topic.hurt, topic.truth
    refused = truth.refused(lambda offset: read_from(client, topic, offset))
    everything = set(range(truth.start_offset, truth.end_offset))
    topic.is_offline = hurt.is_end_lost and refused == everything
    if topic.is_offline:
        return
    assert refused <= hurt.lost, f"intact offsets are refused: {sorted(refused - hurt.lost)[:20]}"
    if hurt.lost:
        behind = max(hurt.lost) + 1
        assert not truth.refused(lambda offset: read_from(client, topic, offset), start=behind)


def _judge_committed(client: RawClient, topic: MatrixTopic) -> None:
    """What was aborted is never served as committed, and what was committed always is."""
    if topic.is_offline:
        return
    refused = topic.truth.refused(lambda offset: read_committed(client, topic, offset))
    assert refused <= topic.hurt.lost, f"intact offsets are refused: {sorted(refused - topic.hurt.lost)[:20]}"


def _judge_times(client: RawClient, topic: MatrixTopic) -> None:
    """Where nothing is lost, offsets are found by their time, in each segment and in all."""
    if topic.hurt.lost:
        return
    records = [record for batch in topic.truth.batches for record in read_records(batch.content, 1 << 20)]
    for asked in records[::16]:
        due = next(record.offset for record in records if record.timestamp_ms >= asked.timestamp_ms)
        assert list_offset(client, topic.name, asked.timestamp_ms).offset == due


def _judge_publishing(client: RawClient, topic: MatrixTopic) -> None:
    """New messages come behind all old ones; where the end is in doubt, none is taken."""
    if topic.is_offline:
        assert publish(client, topic.name, batch_of(b"new", key=b"k")).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        return
    if not topic.hurt.lost:
        again = publish(client, topic.name, topic.last_batch)
        due = topic.truth.batches[-1].base_offset
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, due), "a repeated batch is known again"
    end_offset = topic.records
    for number in range(3):
        result = publish(client, topic.name, batch_of(b"new %d" % number, key=b"k"))
        assert (result.error_code, result.base_offset) == (ErrorCode.NONE, end_offset + number)
    content = read_from(client, topic, end_offset)
    assert [header.base_offset for _, header in iterate_batches(content)][:1] == [end_offset]
    topic.records += 3


def _judge_all(process: BrokerProcess, topics: list[MatrixTopic], ending: str) -> list[str]:
    faults = []
    with RawClient(process.address) as client:
        for judge in (_judge_reading, _judge_committed, _judge_times, _judge_publishing, _judge_reading):
            for topic in topics:
                try:
                    judge(client, topic)
                except AssertionError as error:
                    faults.append(f"{topic.cell.name}, {ending}: {judge.__name__}: {error}")
    return faults


@pytest.mark.timeout(240)
@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_damage_costs_what_is_damaged_and_nothing_else(make_process: Callable[..., BrokerProcess], ending: str) -> None:
    settings = {"checkpoint_interval_ms": 50, "cleaner_interval_ms": 100, "scrub_bytes_per_second": 0}
    process = make_process(**settings)
    topics = [MatrixTopic(cell, f"cell-{number:03d}") for number, cell in enumerate(CELLS)]
    _filled(process, topics, ending)
    assert _findings(process) == {}, "nothing is damaged yet"
    for topic in topics:
        directory = _logs(process) / f"{topic.name}-0"
        topic.truth = Truth(batches_in(directory))
        topic.hurt = topic.cell.harm(directory, ending == "stop")
    found = _findings(process)
    faults = [
        f"{topic.cell.name}, {ending}: {fault}"
        for topic in topics
        for fault in _check_findings(topic, found.pop(f"{topic.name}-0", []))
    ]
    faults += [f"{finding}" for rest in found.values() for finding in rest]
    process.start()
    faults += _judge_all(process, topics, ending)
    assert unexpected_errors(process.operations_url) == 0
    process.kill()
    process.start()
    faults += [f"{fault} (after another start)" for fault in _judge_all(process, topics, ending)]
    process.stop()
    found = _findings(process)
    faults += [
        f"{topic.cell.name}, {ending}: not made again: {finding}"
        for topic in topics
        if not topic.hurt.lost
        for finding in found.get(f"{topic.name}-0", [])
    ]
    assert not faults, "\n" + "\n".join(faults)

"""Flushes and checkpoints: what counts as durable, and that a failed sync is never forgotten."""

import pytest
from sim.disk import SimDisk

from martlet.base.errors import DiskFull, StorageFailure
from martlet.base.ids import TopicId
from martlet.log.flushing import FlushTicket, SyncHealth
from martlet.log.recovery import LogCheckpoint
from tests.unit.log.log_builders import DIRECTORY, NOW_MS, SMALL, checkpointed, fill, new_disk, open_log


def flushed(disk: SimDisk, seed_log_batches: int = 5) -> None:
    log = open_log(disk)
    fill(log, seed_log_batches)
    log.durability.flush()


@pytest.mark.parametrize("seed", range(12))
def test_what_was_flushed_survives_a_power_cut(seed: int) -> None:
    disk = new_disk(seed)
    log = open_log(disk)
    fill(log, 40)
    log.durability.flush()
    assert log.durability.flushed_offset == 80
    fill(log, 10)
    disk.crash("power")
    assert open_log(disk).end_offset >= 80


def test_some_seed_loses_what_was_not_flushed() -> None:
    lost = 0
    for seed in range(12):
        disk = new_disk(seed)
        log = open_log(disk)
        fill(log, 40)
        disk.crash("power")
        lost += not disk.exists(DIRECTORY) or open_log(disk).end_offset < 80
    assert lost > 6


def test_nothing_to_flush_gives_no_ticket() -> None:
    log = open_log(new_disk())
    log.durability.flush()
    assert log.durability.begin_flush() is None
    fill(log, 1)
    assert log.durability.begin_flush() is not None


def test_a_ticket_names_every_segment_with_unsynced_batches_and_new_names() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 3)
    log.durability.flush()
    fill(log, 30)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    names = [file.path for file in ticket.files]
    assert len(names) == len(log.segments)
    assert ticket.directories == [DIRECTORY]
    ticket.sync()
    log.durability.complete_flush(ticket)
    fill(log, 1)
    following = log.durability.begin_flush()
    assert following is not None
    assert len(following.files) == 1
    assert following.directories == []


def test_a_new_directory_is_made_durable_in_its_parent() -> None:
    log = open_log(new_disk())
    fill(log, 1)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    assert ticket.directories == [DIRECTORY, "data"]


def test_the_topic_id_becomes_durable_with_the_first_flush() -> None:
    disk = new_disk(3)
    log = open_log(disk)
    log.assign_topic_id(TopicId(b"0123456789abcdef"))
    log.durability.flush()
    disk.crash("power")
    assert open_log(disk).topic_id == b"0123456789abcdef"


def test_what_comes_after_the_ticket_is_not_flushed_by_it() -> None:
    log = open_log(new_disk())
    fill(log, 3)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    fill(log, 3)
    ticket.sync()
    log.durability.complete_flush(ticket)
    assert (log.durability.flushed_offset, log.end_offset) == (6, 12)


def test_tickets_may_complete_out_of_order() -> None:
    log = open_log(new_disk())
    fill(log, 1)
    first = log.durability.begin_flush()
    fill(log, 20)
    second = log.durability.begin_flush()
    assert first is not None
    assert second is not None
    second.sync()
    log.durability.complete_flush(second)
    assert log.durability.flushed_offset == 42
    first.sync()
    log.durability.complete_flush(first)
    assert log.durability.flushed_offset == 42


def test_a_ticket_from_before_a_truncation_counts_nothing() -> None:
    log = open_log(new_disk())
    fill(log, 5)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    log.truncate_to(4, now_ms=NOW_MS)
    fill(log, 5)
    ticket.sync()
    log.durability.complete_flush(ticket)
    assert (log.durability.flushed_offset, log.end_offset) == (0, 14)


def test_after_a_failed_sync_nothing_is_ever_called_flushed_again() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 2)
    ticket = log.durability.begin_flush()
    assert ticket is not None
    disk.fail_next_sync()
    with pytest.raises(StorageFailure, match="Input/output error"):
        ticket.sync()
    for attempt in (
        ticket.sync,
        log.durability.begin_flush,
        log.durability.begin_checkpoint,
        log.durability.close,
        log.durability.flush,
    ):
        with pytest.raises(StorageFailure, match="the log takes no more syncs"):
            attempt()
    with pytest.raises(StorageFailure, match="the log takes no more syncs"):
        log.durability.complete_flush(ticket)
    assert log.durability.flushed_offset == 0


def test_no_space_while_syncing_is_no_condition_that_heals() -> None:
    class FullFile:
        path = "data/x"

        def sync(self) -> None:
            raise DiskFull("data/x: No space left on device")

    ticket = FlushTicket(
        disk=new_disk(), health=SyncHealth(), end_offset=1, generation=0, files=[FullFile()]  # type: ignore[list-item]
    )  # fmt: skip
    with pytest.raises(StorageFailure) as caught:
        ticket.sync()
    assert not isinstance(caught.value, DiskFull)


def test_the_recovery_point_moves_with_a_checkpoint_and_not_with_a_flush() -> None:
    log = open_log(new_disk())
    fill(log, 5)
    log.durability.flush()
    assert log.durability.recovery_point == 0
    ticket = log.durability.begin_checkpoint()
    assert ticket is not None
    ticket.write()
    assert log.durability.recovery_point == 0
    log.durability.complete_checkpoint(ticket)
    assert log.durability.recovery_point == 10
    assert log.durability.begin_checkpoint() is None


def test_a_checkpoint_never_passes_what_was_flushed() -> None:
    log = open_log(new_disk())
    fill(log, 5)
    log.durability.flush()
    fill(log, 5)
    ticket = log.durability.begin_checkpoint()
    assert ticket is not None
    assert ticket.recovery_point == 10


def test_index_files_are_complete_up_to_the_recovery_point() -> None:
    disk = new_disk(5)
    log = open_log(disk)
    fill(log, 60)
    recovery = checkpointed(log)
    disk.crash("power")
    again = open_log(disk, SMALL, recovery)
    before = disk.writes
    for offset in range(0, 100, 10):
        assert again.times_below(120).first_at(NOW_MS + 5 * offset) is not None
    assert disk.writes == before, "no index had to be rebuilt"


def test_a_full_disk_holds_the_recovery_point_back() -> None:
    disk = new_disk()
    log = open_log(disk)
    fill(log, 30)
    log.durability.flush()
    disk.capacity_bytes = disk.used_bytes()
    assert log.durability.begin_checkpoint() is None
    disk.capacity_bytes = None
    assert checkpointed(log) == LogCheckpoint(60, 0, 0)


def test_epochs_are_durable_before_the_recovery_point_passes_them() -> None:
    disk = new_disk(8)
    log = open_log(disk)
    for epoch in range(5):
        fill(log, 10, leader_epoch=epoch)
    recovery = checkpointed(log)
    entries = list(log.epochs.entries)
    disk.crash("power")
    assert open_log(disk, SMALL, recovery).epochs.entries == entries

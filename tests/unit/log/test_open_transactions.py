"""Where the oldest transaction of a log begins: through appends, markers, snapshots, truncation and a restart."""

from random import Random

import pytest
from sim.disk import SimDisk

from martlet.log.open_transactions import OpenTransactions
from martlet.log.partition_log import PartitionLog
from martlet.log.producer_snapshot import decode_producers, encode_producers
from martlet.log.replicated_batches import check_replicated
from tests.unit.log.log_builders import (
    NOW_MS,
    append,
    batch_of,
    batches_in,
    checkpointed,
    close_cleanly,
    marker,
    new_disk,
    open_log,
    transactional,
)


def committed(log: PartitionLog) -> int | None:
    """Where the oldest transaction begins once all of the log is committed."""
    log.high_watermark = log.end_offset
    return None if log.last_stable_offset == log.end_offset else log.last_stable_offset


def open_from(log: PartitionLog) -> int | None:
    """Where the oldest transaction begins, as things stand."""
    return log.producers.transactions.first_unstable_offset


def test_a_log_without_transactions_has_no_unstable_offset() -> None:
    log = open_log(new_disk())
    append(log, batch_of(b"plain"))
    append(log, batch_of(b"idempotent", producer=(5, 0, 0)))
    assert open_from(log) is None
    assert len(log.producers.transactions) == 0


def test_a_transaction_begins_at_its_first_batch_and_ends_with_its_committed_marker() -> None:
    log = open_log(new_disk())
    append(log, batch_of(b"before"))
    append(log, transactional(7, b"a", b"b"))
    append(log, transactional(7, b"c", sequence=2))
    assert open_from(log) == 1
    append(log, marker(7))
    assert open_from(log) == 1, "the marker may still be lost"
    log.producers.transactions.release_below(4)
    assert open_from(log) == 1
    assert committed(log) is None


def test_the_oldest_of_several_counts() -> None:
    log = open_log(new_disk())
    for producer_id in (1, 2, 3):
        append(log, transactional(producer_id, b"v"))
    append(log, marker(2, is_commit=False))
    assert committed(log) == 0
    append(log, marker(1))
    assert committed(log) == 2
    append(log, transactional(1, b"again", sequence=1))
    assert committed(log) == 2
    append(log, marker(3))
    assert committed(log) == 5


def test_a_decided_transaction_holds_back_until_its_marker_is_committed() -> None:
    transactions = OpenTransactions()
    transactions.begin(1, 10)
    transactions.begin(2, 20)
    transactions.decide(2, 30)
    transactions.decide(1, 31)
    assert transactions.first_unstable_offset == 10
    transactions.release_below(31)
    assert transactions.first_unstable_offset == 10
    transactions.begin(2, 32)
    transactions.release_below(32)
    assert transactions.first_unstable_offset == 32


def test_a_marker_without_a_transaction_opens_none() -> None:
    log = open_log(new_disk())
    append(log, marker(4))
    append(log, marker(4, epoch=2))
    assert open_from(log) is None
    entry = log.producers.get(4)
    assert entry is not None
    assert entry.epoch == 2


def test_a_marker_of_a_later_epoch_ends_the_transaction() -> None:
    log = open_log(new_disk())
    append(log, transactional(7, b"a"))
    append(log, marker(7, epoch=1))
    assert committed(log) is None
    append(log, transactional(7, b"b", epoch=1))
    assert open_from(log) == 2


def test_a_batch_of_a_later_epoch_leaves_the_transaction_open_where_it_began() -> None:
    log = open_log(new_disk())
    append(log, transactional(7, b"a"))
    append(log, transactional(7, b"b", epoch=1))
    assert open_from(log) == 0


def test_a_coordinators_batch_without_sequence_numbers_opens_a_transaction() -> None:
    log = open_log(new_disk())
    append(log, transactional(7, b"a", sequence=-1))
    append(log, transactional(7, b"b", sequence=-1))
    entry = log.producers.get(7)
    assert entry is not None
    assert (open_from(log), entry.batches) == (0, [])


def test_deleted_records_take_the_beginning_of_a_transaction_along() -> None:
    log = open_log(new_disk())
    append(log, transactional(7, b"a", b"b"))
    append(log, batch_of(b"behind"))
    log.advance_log_start(2)
    assert committed(log) == 2


def test_a_producer_with_an_open_transaction_does_not_expire() -> None:
    log = open_log(new_disk())
    append(log, transactional(7, b"a"))
    append(log, batch_of(b"idle", producer=(8, 0, 0)))
    assert log.producers.expire(NOW_MS * 1000, 1) == 1
    assert open_from(log) == 0


def test_a_snapshot_keeps_the_open_transactions() -> None:
    log = open_log(new_disk())
    for producer_id in (3, 1, 2):
        append(log, transactional(producer_id, b"v"))
    append(log, marker(3))
    restored = decode_producers(encode_producers(log.producers))
    assert restored is not None
    assert restored.transactions.first_unstable_offset == 1
    restored.transactions.decide(1, 4)
    restored.transactions.release_below(5)
    assert restored.transactions.first_unstable_offset == 2


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("rolls", [True, False])
def test_a_restart_finds_the_open_transactions(is_clean: bool, rolls: bool) -> None:
    disk = new_disk()
    log = open_log(disk)
    append(log, transactional(1, b"decided"))
    append(log, transactional(2, b"open"))
    append(log, marker(1))
    if rolls:
        log.roller.roll(NOW_MS)
    append(log, transactional(3, b"open, too"))
    known = close_cleanly(log) if is_clean else checkpointed(log)
    found = open_log(disk, checkpoint=known)
    assert committed(found) == 1
    append(found, marker(2))
    assert committed(found) == 3


def test_a_truncation_opens_again_what_a_lost_marker_had_decided() -> None:
    log = open_log(new_disk())
    append(log, transactional(1, b"a"))
    append(log, transactional(2, b"b"))
    append(log, marker(1))
    append(log, marker(2))
    assert committed(log) is None
    log.truncate_to(3, now_ms=NOW_MS)
    assert committed(log) == 1
    log.truncate_to(1, now_ms=NOW_MS)
    assert committed(log) == 0
    log.truncate_fully_and_start_at(50, now_ms=NOW_MS)
    assert open_from(log) is None


def test_a_follower_keeps_no_decided_transactions_that_are_committed() -> None:
    leader, follower = open_log(new_disk()), open_log(new_disk())
    for number in range(3):
        append(leader, transactional(1, b"v", sequence=number))
        append(leader, marker(1))
        batches = batches_in(leader)[-2:]
        follower.append_as_is(check_replicated(b"".join(batches)), now_ms=NOW_MS)
        assert open_from(follower) == 2 * number, "only the last one is held"
        follower.high_watermark = follower.end_offset


def open_ones_by_hand(decisions: list[tuple[int, bool]]) -> int | None:
    """The model: the least first offset of the producers whose last step opened a transaction, one offset a step."""
    firsts: dict[int, int] = {}
    for offset, (producer_id, ends) in enumerate(decisions):
        if ends:
            firsts.pop(producer_id, None)
        else:
            firsts.setdefault(producer_id, offset)
    return min(firsts.values(), default=None)


@pytest.mark.parametrize("seed", range(20))
def test_leader_follower_restart_and_truncation_agree_with_the_model(seed: int) -> None:
    random = Random(seed)
    disk: SimDisk = new_disk()
    leader, follower = open_log(new_disk()), open_log(disk)
    steps: list[tuple[int, bool]] = []
    sequences = dict.fromkeys(range(4), 0)
    for _ in range(60):
        producer_id, ends = random.randrange(4), random.random() < 0.4
        steps.append((producer_id, ends))
        batch = marker(producer_id) if ends else transactional(producer_id, b"v", sequence=sequences[producer_id])
        sequences[producer_id] += not ends
        append(leader, batch)
        assert committed(leader) == open_ones_by_hand(steps)
    follower.append_as_is(check_replicated(b"".join(batches_in(leader))), now_ms=NOW_MS)
    assert committed(follower) == open_ones_by_hand(steps)
    assert committed(open_log(disk)) == open_ones_by_hand(steps)
    end_offset = random.randrange(60)
    follower.truncate_to(end_offset, now_ms=NOW_MS)
    assert committed(follower) == open_ones_by_hand(steps[:end_offset])

"""How much may be written: what is counted, when the disk is looked at, and when it is full."""

import pytest
from sim.clock import SimClock

from martlet.base.errors import ApiError, DiskFull, ErrorCode, StorageFailure
from martlet.broker.ground.disk_space import DiskSpace

MEBIBYTE = 1 << 20
RESERVE = 64 * MEBIBYTE


class SomeDisk:
    """A disk that others write to as well, and that counts how often it is looked at."""

    def __init__(self, free: int, reserve: int = RESERVE) -> None:
        self.free = free
        self.measurements = 0
        self.failure: StorageFailure | None = None
        self.clock = SimClock()
        self.space = DiskSpace(self._measure, reserve, self.clock)
        self.changes: list[bool] = []
        self.space.on_change = lambda: self.changes.append(self.space.is_full)
        self.space.measure()

    def _measure(self) -> int:
        self.measurements += 1
        if self.failure is not None:
            raise self.failure
        return self.free

    def write(self, size: int) -> None:
        self.space.claim(size)
        self.free -= size


def is_refused(disk: SomeDisk, size: int) -> bool:
    try:
        disk.write(size)
    except ApiError as error:
        return error.code is ErrorCode.KAFKA_STORAGE_ERROR
    return False


@pytest.mark.parametrize("batch", [100, 70_000, 900_000])
def test_messages_take_all_but_the_reserve_between_two_regular_measurements(batch: int) -> None:
    disk = SomeDisk(RESERVE + 40 * MEBIBYTE)
    written = 0
    while not is_refused(disk, batch):
        written += 1
    assert RESERVE <= disk.free < RESERVE + batch
    assert disk.measurements < 120, "a measurement for nearly nothing but the last few batches"
    assert disk.changes == [True]


def test_what_others_take_is_seen_before_the_reserve_is_reached() -> None:
    disk = SomeDisk(RESERVE + 100 * MEBIBYTE)
    disk.free -= 60 * MEBIBYTE
    while not is_refused(disk, 1_000):
        pass
    assert disk.free >= RESERVE


def test_a_full_disk_is_not_measured_for_every_refusal() -> None:
    disk = SomeDisk(RESERVE)
    assert is_refused(disk, 1)
    measurements = disk.measurements
    assert all(is_refused(disk, 1) for _ in range(100))
    assert disk.measurements == measurements
    with pytest.raises(ApiError, match="full"):
        disk.space.check()


def test_a_disk_is_full_until_clearly_more_is_free() -> None:
    disk = SomeDisk(RESERVE + MEBIBYTE)
    for free in (RESERVE - 1, RESERVE, RESERVE + 15 * MEBIBYTE, RESERVE - 5):
        disk.free = free
        disk.space.measure()
        assert is_refused(disk, 1)
    assert disk.changes == [True]
    disk.free = RESERVE + 17 * MEBIBYTE
    disk.space.measure()
    assert not is_refused(disk, MEBIBYTE)
    assert disk.changes == [True, False]


def test_a_write_that_found_no_space_where_the_system_sees_some_is_tried_again_after_a_while() -> None:
    disk = SomeDisk(1 << 40)
    disk.space.write_failed(DiskFull("a quota"))
    assert is_refused(disk, 1)
    disk.clock.advance(9_000)
    disk.space.measure()
    assert disk.space.is_full
    disk.clock.advance(1_000)
    disk.space.measure()
    assert not is_refused(disk, 1)


def test_without_a_reserve_nothing_is_counted_and_only_a_failed_write_says_that_there_is_no_space() -> None:
    disk = SomeDisk(10, reserve=0)
    assert not is_refused(disk, 1 << 30)
    disk.free = 0
    disk.space.write_failed(DiskFull("truly"))
    assert is_refused(disk, 1)
    disk.free = 2 * MEBIBYTE
    disk.space.measure()
    assert not is_refused(disk, 1 << 30)


def test_a_disk_that_does_not_say_what_is_free_is_written_to_as_far_as_it_was_known() -> None:
    disk = SomeDisk(RESERVE + 10 * MEBIBYTE)
    disk.failure = StorageFailure("no answer")
    with pytest.raises(StorageFailure):
        disk.space.measure()
    written = 0
    while not is_refused(disk, MEBIBYTE):
        written += 1
    assert written == 10

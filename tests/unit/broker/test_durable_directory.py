"""A data directory is only as durable as every name on the way to it."""

from sim.disk import SimDisk
from sim.randomness import SimRandomness

from martlet.broker.app import make_durable_directory


class WatchedDisk(SimDisk):
    """Writes down which directories were synced."""

    def __init__(self) -> None:
        super().__init__(SimRandomness(1))
        self.synced: list[str] = []

    def sync_directory(self, path: str) -> None:
        self.synced.append(path)
        super().sync_directory(path)


def test_every_parent_is_synced_at_every_start_also_when_an_earlier_process_made_the_directory() -> None:
    disk = WatchedDisk()
    for _ in range(2):
        disk.synced.clear()
        make_durable_directory(disk, "/srv/data/broker-1")
        assert disk.synced == ["/srv/data", "/srv", "/"]
    assert disk.exists("/srv/data/broker-1")

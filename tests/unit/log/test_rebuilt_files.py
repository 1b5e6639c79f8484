"""A file beside a log that cannot be read costs what its absence costs: the log opens, and the file is made again."""

from pathlib import Path

import pytest

from martlet.base.disk import SystemDisk
from martlet.log.log_directory import LogDirectory
from martlet.log.options import LogOptions
from tests.unit.log.log_builders import NOW_MS, PARTITION, append, batch_of, batches_in, offsets

_OPTIONS = LogOptions(segment_bytes=1000, index_interval_bytes=200, retention_ms=-1)


def _filled(root: Path) -> LogDirectory:
    directory = LogDirectory(SystemDisk(), str(root), _OPTIONS)
    directory.open(NOW_MS)
    log = directory.create(PARTITION, topic_id=b"0" * 16, now_ms=NOW_MS)  # type: ignore[arg-type]
    for number in range(30):
        append(log, batch_of(b"value" * 20, producer=(7, 0, number)), leader_epoch=number // 10)
    log.durability.flush()
    directory.checkpoint()
    return directory


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    "pattern", ["*.index", "*.timeindex", "*.snapshot", "leader-epoch-checkpoint", "partition.metadata", "known-gaps"]
)
def test_what_can_be_made_again_need_not_be_readable(tmp_path: Path, pattern: str, is_clean: bool) -> None:
    _filled(tmp_path).close(clean=is_clean)
    for file in [*(tmp_path / "orders-0").glob(pattern)] or [tmp_path / "orders-0" / pattern]:
        file.unlink(missing_ok=True)
        file.symlink_to(file.name)  # opening it fails, for a privileged user too
    directory = LogDirectory(SystemDisk(), str(tmp_path), _OPTIONS)
    directory.open(NOW_MS)
    assert directory.failures == {}
    log = directory.get(PARTITION)
    assert log is not None
    assert offsets(batches_in(log)) == [*range(30)]
    assert log.times_below(30).latest() is not None
    assert [log.epochs.epoch_at(offset) for offset in (0, 9, 10, 29)] == [0, 0, 1, 2]
    assert append(log, batch_of(b"value" * 20, producer=(7, 0, 29)), leader_epoch=2).duplicate
    assert append(log, batch_of(b"more", producer=(7, 0, 30)), leader_epoch=2).base_offset == 30
    directory.close()

"""What is wrong with the files of a delay index at rest; a start makes again what is damaged, from the log.

Proved by: tests/unit/queues/test_delay_check.py
"""

from collections.abc import Iterator

from martlet.base.disk import Disk
from martlet.base.errors import StorageFailure
from martlet.queues.delay_index import RUN_LIST, listed_runs
from martlet.queues.delay_run import DamagedRun, DelayRun


def damaged_files(disk: Disk, directory: str) -> Iterator[tuple[str, str]]:
    """Every file that is not what was written, and why; nothing is changed."""
    if not disk.exists(directory):
        return
    names = listed_runs(disk, directory)
    if names is None:
        yield f"{directory}/{RUN_LIST}", "the list of runs is damaged or gone"
        return
    for name in names:
        path = f"{directory}/{name}"
        if not disk.exists(path):
            yield path, "the file is gone"
            continue
        try:
            run = DelayRun(disk, path, name)
            try:
                run.check()
            finally:
                run.close()
        except DamagedRun as damage:
            yield path, str(damage)
        except StorageFailure as failure:
            yield path, str(failure)

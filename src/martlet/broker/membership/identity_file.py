"""Whose log directory this is: cluster, broker, and the process start that used it last.

The file stands in the log directory and is written durably by every process once it is registered, before it takes
any message; on a full disk as soon as there is space. So a directory that names the registered predecessor is the one
that predecessor used, with all it held (see `membership.py` for what follows from that); any other one proves nothing.

A process may end, or lose the answer, between its registration and that. So before it registers it writes down what it
calls this attempt, and registers under that name: a registration of that name is of a process that had this directory
and changed nothing in it.

A file that cannot be read is a StorageFailure and left as it is; a missing one means a new directory.

Proved by: tests/unit/broker/membership/test_membership.py
"""

import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Final

from martlet.base.disk import Disk
from martlet.base.errors import DiskFull, StorageFailure
from martlet.base.ids import BrokerId, Incarnation
from martlet.cluster.records import BrokerRecord
from martlet.cluster.store import LeaseId

IDENTITY_FILE: Final = "martlet.identity"
_FILE_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Identity:
    """The last user of a log directory."""

    cluster_id: str
    broker_id: BrokerId
    incarnation: Incarnation
    lease: LeaseId
    attempt: str = ""
    """The start that was under way after that one, if it did not get far enough to be the last user itself."""
    place: str = ""
    """Where the directory was then: a copy of it lies elsewhere, and may lack what was written since it was made."""
    gave_up: bool = False
    """Whether it has put aside a log that it could not open: what its predecessors held is not all here any more."""

    def is_of(self, broker: BrokerRecord) -> bool:
        """Whether the process registered so used this directory last, or was about to."""
        return broker.incarnation == self.incarnation or (bool(self.attempt) and broker.attempt == self.attempt)


def read_identity(disk: Disk, directory: str) -> Identity | None:
    """The last user, or None for a directory that had none."""
    path = f"{directory}/{IDENTITY_FILE}"
    content = disk.read_file(path)
    if content is None:
        return None
    try:
        value = json.loads(content)
        return Identity(
            str(value["cluster_id"]),
            BrokerId(int(value["broker_id"])),
            Incarnation(int(value["incarnation"])),
            LeaseId(int(value["lease"])),
            str(value.get("attempt", "")),
            str(value.get("place", "")),
            bool(value.get("gave_up", False)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StorageFailure(
            f"{path} does not say whose directory this is ({type(error).__name__}: {error}); it is damaged. If you are "
            "sure that the directory belongs to this broker, remove the file: what it holds is then checked against "
            "other replicas"
        ) from error


def write_identity(disk: Disk, directory: str, identity: Identity) -> None:
    """Make this the last user, durably; on a full disk in the space that the last writing left for this one."""
    path = f"{directory}/{IDENTITY_FILE}"
    content = json.dumps(asdict(identity), indent=1).encode()
    _write_draft(disk, path, content.ljust(_FILE_BYTES - 1) + b"\n")
    disk.rename(f"{path}.tmp", path)
    disk.sync_directory(directory)
    with suppress(DiskFull):
        _write_draft(disk, path, bytes(_FILE_BYTES))


def _write_draft(disk: Disk, path: str, content: bytes) -> None:
    file = disk.open(f"{path}.tmp", create=True)
    try:
        # Never empty in between: on a full disk others would take what it gives back.
        file.pwrite(content, 0)
        file.truncate(len(content))
        file.sync()
    finally:
        file.close()

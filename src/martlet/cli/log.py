"""`martlet log`: what is wrong with messages at rest, and making a damaged log usable again.

A directory is checked, and repaired, while no broker uses it; a topic is checked through a running broker.
"""

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

import click

from martlet.base.disk import SystemDisk
from martlet.base.errors import StorageFailure
from martlet.base.ids import TopicPartition
from martlet.cli.confirmation import confirm
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import Target, connects, json_option
from martlet.cli.output import format_count, print_json, print_note, print_table
from martlet.cli.progress import Progress
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster
    from martlet.client.topic_check import Unreadable
    from martlet.log.check import Finding

_QUIET_MS: Final = 1_000
"""A check that is over so soon shows no progress."""


@click.group()
def log() -> None:
    """Check messages at rest for damage, and repair what is damaged."""


@log.command(short_help="Find what is wrong in a data directory or a topic.")
@click.argument("directory", metavar="[DIR]", required=False, type=click.Path(exists=True, file_okay=False))
@click.option("--topic", "topics", multiple=True, metavar="TOPIC", help="Check this topic of a running broker instead.")
@click.option("--repair", "repairs", is_flag=True, help="Give up what is lost, so that the rest can be used again.")
@click.option("--yes", is_flag=True, help="Repair without asking.")
@json_option
@connects
def check(
    directory: str | None, topics: Sequence[str], repairs: bool, yes: bool, as_json: bool, target: Target
) -> ExitCode:
    """Find all that is wrong in DIR, or with a topic of a running broker.

    DIR is a data directory, or a broker's directory in it, that no broker uses now. All of it is read, and nothing is
    changed.

    --repair shows what would be lost and asks. It gives up the offsets that cannot be read: they are never handed out
    again, readers go on behind them, and what is left of the files is kept next to the log as `*.damaged`. With other
    replicas there is no need for it: a broker fetches what is damaged from them by itself.
    """
    if (directory is None) == (not topics):
        raise click.UsageError("give a directory, or --topic TOPIC to check a topic of a running broker")
    if directory is None:
        if repairs:
            raise click.UsageError("--repair needs a directory that no broker uses")
        return _check_topics(topics, target, as_json=as_json)
    with _held(directory) as broker_directories:
        findings = {path: _check_directory(path) for path in broker_directories}
        found = [finding for path in findings for finding in findings[path]]
        if as_json:
            print_json([_as_json(finding) for finding in found])
        elif found:
            _print_findings(found)
        if not found:
            if not as_json:
                print_note(f"{directory}: no damage found")
            return ExitCode.OK
        if not repairs:
            if not as_json:
                print_note(f"{format_count(len(found), 'fault')} found; --repair shows what it would cost to mend them")
            return ExitCode.CHECK_FAILED
        _repair(findings, yes=yes, is_quiet=as_json)
        return ExitCode.OK


# --- a directory


@contextlib.contextmanager
def _held(directory: str) -> Iterator[list[str]]:
    """The broker directories in it, each kept from a broker that would start now."""
    from martlet.broker.membership.directory_lock import hold_directory

    names = sorted(os.listdir(directory))
    inside = [os.path.join(directory, name) for name in names if name.startswith("broker-")]
    paths = [path for path in inside if os.path.isdir(path)] or [directory]
    with contextlib.ExitStack() as stack:
        for path in paths:
            stack.enter_context(hold_directory(path))
        yield paths


def _check_directory(path: str) -> list["Finding"]:
    from martlet.broker.membership.identity_file import IDENTITY_FILE, read_identity
    from martlet.log.check import Finding, FindingKind, check_log_directory

    disk = SystemDisk()
    with Progress(quiet_ms=_QUIET_MS) as progress:

        def begins(number: int, total: int) -> None:
            progress.show(f"{path}: partition {number:,} of {total:,}")

        found = list(check_log_directory(disk, path, begins))
    found += _check_schedules(disk, path)
    try:
        read_identity(disk, path)
    except StorageFailure as failure:
        file = os.path.join(path, IDENTITY_FILE)
        found.append(Finding(FindingKind.REBUILT, file, str(failure), "the broker does not start with it"))
    return found


def _check_schedules(disk: SystemDisk, path: str) -> Iterator["Finding"]:
    """When delayed messages are due is kept beside each log, and made again from it."""
    from martlet.broker.partitions.delivery_features import DIRECTORY
    from martlet.log.check import Finding, FindingKind
    from martlet.log.file_names import parse_partition_directory
    from martlet.queues.delay_check import damaged_files

    for name, is_directory, _ in disk.list_directory(path):
        partition = parse_partition_directory(name) if is_directory else None
        if partition is not None:
            for file, what in damaged_files(disk, os.path.join(path, name, DIRECTORY)):
                yield Finding(FindingKind.REBUILT, file, what, "a start reads it from the log again", partition)


def _repair(findings: dict[str, list["Finding"]], *, yes: bool, is_quiet: bool) -> None:
    from martlet.log.check import FindingKind
    from martlet.log.file_names import partition_directory
    from martlet.log.repair import repair

    everything = [finding for found in findings.values() for finding in found]
    unreadable = [finding for finding in everything if finding.kind is FindingKind.UNREADABLE]
    lost = sum(_count(finding) for finding in everything if finding.kind is not FindingKind.UNREADABLE)
    if not is_quiet:
        print_note(
            f"repairing gives up {format_count(lost, 'message')} for good; the damaged files are kept next to the log"
        )
    if not yes:
        confirm("repair?", "nothing was changed", instead="--yes repairs without asking")
    disk = SystemDisk()
    for path, found in findings.items():
        by_partition: dict[TopicPartition | None, list[Finding]] = defaultdict(list)
        for finding in found:
            if finding.kind is not FindingKind.UNREADABLE:
                by_partition[finding.partition].append(finding)
        for partition, mine in by_partition.items():
            repair(disk, path if partition is None else os.path.join(path, partition_directory(partition)), mine)
    if not is_quiet:
        print_note(f"{format_count(len(everything) - len(unreadable), 'fault')} repaired")
    if unreadable:
        raise CommandFailed(
            ExitCode.CHECK_FAILED,
            f"{format_count(len(unreadable), 'file')} could not be read and cannot be repaired; check the device and "
            "at who owns the files",
        )


def _print_findings(found: Sequence["Finding"]) -> None:
    rows = [
        [
            "-" if finding.partition is None else str(finding.partition),
            _offsets(finding),
            finding.file if finding.position is None else f"{finding.file} at byte {finding.position}",
            f"{finding.what}; {finding.consequence}",
        ]
        for finding in found
    ]
    print_table(["PARTITION", "OFFSETS", "FILE", "WHAT IS WRONG"], rows)


def _count(finding: "Finding") -> int:
    if finding.first_offset is None or finding.next_offset is None:
        return 0
    return finding.next_offset - finding.first_offset


def _offsets(finding: "Finding") -> str:
    if not _count(finding):
        return "-"
    return f"{finding.first_offset}-{(finding.next_offset or 0) - 1}"


def _as_json(finding: "Finding") -> dict[str, Any]:
    return {
        "partition": None if finding.partition is None else str(finding.partition),
        "kind": finding.kind.value,
        "file": finding.file,
        "position": finding.position,
        "first_offset": finding.first_offset,
        "next_offset": finding.next_offset,
        "what": finding.what,
        "consequence": finding.consequence,
    }


# --- a topic of a running broker


def _check_topics(topics: Sequence[str], target: Target, *, as_json: bool) -> ExitCode:
    async def work(cluster: "Cluster") -> list["Unreadable"]:
        from martlet.client.offsets import offset_ranges
        from martlet.client.topic_check import check_partition

        found: list[Unreadable] = []
        for name in topics:
            info = await cluster.topic(name)
            partitions = [TopicPartition(name, index) for index in info.partitions]
            for partition, offsets in (await offset_ranges(cluster, partitions)).items():
                found += [unreadable async for unreadable in check_partition(cluster, partition, offsets)]
        return found

    found = run_with_cluster(target, work)
    if as_json:
        print_json(
            [
                {
                    "partition": str(unreadable.partition),
                    "first_offset": unreadable.first_offset,
                    "next_offset": unreadable.next_offset,
                    "what": unreadable.what,
                }
                for unreadable in found
            ]
        )
    elif found:
        rows = [[str(one.partition), f"{one.first_offset}-{one.next_offset - 1}", one.what] for one in found]
        print_table(["PARTITION", "OFFSETS", "WHAT THE BROKER SAYS"], rows)
    else:
        print_note(f"{', '.join(topics)}: every message can be read")
    return ExitCode.CHECK_FAILED if found else ExitCode.OK

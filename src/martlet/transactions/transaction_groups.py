"""Groups of transactions: many children, written by many processes, and one decision that ends them together.

A program that runs again and again (its *runs*) does its work in numbered steps. In each step many tasks write, each
attempt of a task in a child transaction of its own, by stock clients. The run then ends the step with one request that
names the winning attempts: they are committed, every other open child is aborted, and the step is stored, all in one
append. So a step is all or nothing, whatever restarts in between, and ended twice it is answered "already done".

How it works: the owner's record holds the last step decided and the runs; its producer epoch is the token of the run
that may decide. The token stands in the names of the children, so those of an older run are known by their names.

Invariants:
TXN-6 A step is decided at most once, by the newest run, with winners that were open at exactly the pairs named.
TXN-7 No child of a decided step, or of an older run, opens or grows; a decision aborts what is open of them.
TXN-8 What one decision writes fits one append: the add that would break this is refused, never the decision.

Proved by: tests/unit/transactions/test_transaction_groups.py
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.coordinator.result import Result
from martlet.transactions.names import ChildName, child_name, is_owner, owner_id
from martlet.transactions.records import (
    RUN_BYTES,
    GroupProgress,
    ProducerPair,
    TransactionRecord,
    TransactionRemoved,
    TransactionStored,
)
from martlet.transactions.requests import OfTransaction, TransactionsOptions
from martlet.transactions.states import TransactionState
from martlet.transactions.table import TransactionTable
from martlet.transactions.transitions import FreshId, Generation, client_pair, fenced, newcomer, raised
from martlet.transactions.work import TransactionWork

PLACE_BYTES_MAX: Final = 1_024
NOTE_BYTES_MAX: Final = 4_096
_RUNS_KEPT: Final = 16
"""Superseded runs whose ids are remembered, so that one of them cannot take the group back."""
_NAMED_MAX: Final = 5
_ABORT_ONLY: Final = -1


class OpenGroupWish(NamedTuple):
    """A run takes its group over."""

    group: str
    run: bytes
    place: str
    next_sequence: int
    """The step that the run would do next by its own books."""
    start_over: bool = False
    """Take that for the truth, whatever the group has decided."""
    take_over: bool = False
    """Although the runs before kept their books in another place."""


class GroupOpened(NamedTuple):
    """The token of the run, and what is decided."""

    token: ProducerPair
    progress: GroupProgress


class EndGroupWish(NamedTuple):
    """A run ends a step; with sequence -1 and no winners it gives up what is open."""

    group: str
    token: ProducerPair
    sequence: int
    winners: tuple[OfTransaction, ...] = ()
    note: bytes = b""


class GroupEnded(NamedTuple):
    """What is decided now, and whether it was before."""

    already_done: bool
    progress: GroupProgress


class TransactionGroups:
    """The rules; reads the table of one machine."""

    def __init__(self, table: TransactionTable, options: TransactionsOptions, fresh_id: FreshId) -> None:
        self._table = table
        self._options = options
        self._fresh_id = fresh_id

    # --- runs

    def open_group(self, wish: OpenGroupWish, work: TransactionWork) -> Result[TransactionRecord, GroupOpened]:
        _check_sizes(wish)
        owner = owner_id(wish.group)
        stored = self._table.get(owner)
        if stored is None:
            if wish.next_sequence > 0 and not wish.start_over:
                detail = f"nothing is known of group {wish.group[:100]!r}, and this run is at step {wish.next_sequence}"
                raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, detail)
            stored = newcomer(owner, self._fresh_id(), self._options.max_timeout_ms)
        progress = stored.group or GroupProgress(wish.next_sequence - 1)
        if progress.runs and progress.runs[-1] == wish.run:
            return Result(GroupOpened(client_pair(stored), progress))
        if wish.run in progress.runs:
            raise fenced(stored)
        if stored.group is not None and progress.place != wish.place and not wish.take_over:
            detail = f"group {wish.group[:100]!r} belongs to runs that keep their books in {progress.place!r}"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)
        progress = replace(
            progress,
            last_sequence=wish.next_sequence - 1 if wish.start_over else progress.last_sequence,
            runs=(*progress.runs, wish.run)[-_RUNS_KEPT - 1 :],
            place=wish.place,
        )
        token = raised(client_pair(stored), self._fresh_id)
        work.records.append(
            replace(
                stored,
                producer_id=token.id,
                producer_epoch=token.epoch,
                updated_at_ms=work.now_ms,
                previous_producer_id=stored.producer_id if token.id != stored.producer_id else -1,
                group=progress,
            )
        )
        self._give_up(self._table.children(owner).values(), work)
        return work.result(GroupOpened(token, progress))

    # --- decisions

    def end_group(self, wish: EndGroupWish, work: TransactionWork) -> Result[TransactionRecord, GroupEnded]:
        owner = owner_id(wish.group)
        stored = self._table.get(owner)
        if stored is None or stored.group is None:
            detail = f"there is no group of transactions {wish.group[:100]!r}"
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, detail)
        if wish.token != client_pair(stored):
            raise fenced(stored)
        children = self._table.children(owner)
        if wish.sequence == _ABORT_ONLY and not wish.winners:
            self._give_up(children.values(), work)
            return work.result(GroupEnded(False, stored.group))
        if wish.sequence <= stored.group.last_sequence and wish.sequence >= 0:
            return Result(GroupEnded(True, stored.group))
        winners = self._winners(wish, owner)
        progress = replace(stored.group, last_sequence=wish.sequence, note=wish.note, decided_by=stored.group.runs[-1])
        work.records.append(replace(stored, updated_at_ms=work.now_ms, group=progress))
        for winner in winners.values():
            work.decide(winner, is_commit=True, generation=Generation.SECOND, by_client=True)
        rest = [child for child in children.values() if child.transactional_id not in winners]
        self._give_up((child for child in rest if _name(child).sequence <= wish.sequence), work)
        return work.result(GroupEnded(False, progress))

    def _winners(self, wish: EndGroupWish, owner: str) -> dict[str, TransactionStored]:
        """The children that are to be committed; raises when one of them cannot be."""
        if wish.sequence < 0:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{wish.sequence} is no step of a group; they count from 0")
        if len(wish.note) > NOTE_BYTES_MAX:
            detail = f"a note of {len(wish.note)} bytes; at most {NOTE_BYTES_MAX} are stored"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)
        found: dict[str, TransactionStored] = {}
        lost: list[str] = []
        tasks: set[int] = set()
        for winner in wish.winners:
            name = child_name(winner.transactional_id)
            if name is None or name[:3] != (owner, wish.token.epoch, wish.sequence):
                detail = f"{winner.transactional_id[:100]!r} is no child of this run's step {wish.sequence}"
                raise ApiError(ErrorCode.INVALID_REQUEST, detail)
            if name.task in tasks:
                raise ApiError(ErrorCode.INVALID_REQUEST, f"task {name.task} has two winners")
            tasks.add(name.task)
            stored = self._table.get(winner.transactional_id)
            if stored is None or stored.state is not TransactionState.ONGOING or client_pair(stored) != winner.pair:
                lost.append(winner.transactional_id)
            else:
                found[winner.transactional_id] = stored
        if lost:
            named = ", ".join(lost[:_NAMED_MAX]) + (" and more" if len(lost) > _NAMED_MAX else "")
            detail = f"{len(lost)} winners have no open transaction any more: {named}"
            raise ApiError(ErrorCode.TRANSACTION_ABORTABLE, detail)
        return found

    def _give_up(self, children: Iterable[TransactionStored], work: TransactionWork) -> None:
        """Abort what is open, and forget what has written nothing."""
        for child in children:
            if child.state is TransactionState.ONGOING:
                work.decide(child, is_commit=False, generation=Generation.SECOND, by_client=False)
            elif child.state.is_idle:
                work.records.append(TransactionRemoved(child.transactional_id))

    # --- what children may do

    def check_child(self, transactional_id: str) -> None:
        """Raise for an id that no client may use as its own now; plain ids pass."""
        if is_owner(transactional_id):
            detail = f"{transactional_id[:100]!r} stands for a group of transactions and has no producer"
            raise ApiError(ErrorCode.INVALID_REQUEST, detail)
        name = child_name(transactional_id)
        if name is None:
            return
        owner = self._table.get(name.owner)
        is_of_this_run = owner is not None and owner.producer_epoch == name.owner_epoch
        if (
            owner is None
            or not is_of_this_run
            or (owner.group is not None and name.sequence <= owner.group.last_sequence)
        ):
            detail = f"{transactional_id[:100]!r} belongs to an older run, or to a step that is decided"
            raise ApiError(ErrorCode.PRODUCER_FENCED, detail)

    def check_child_may_grow(self, grown: TransactionStored) -> None:
        """Raise when a child must not have the partitions it would have (TXN-7, TXN-8)."""
        name = child_name(grown.transactional_id)
        if name is None:
            return
        self.check_child(grown.transactional_id)
        if not self._table.has_place_for_child(name.owner, grown, self._options.children_max):
            detail = f"group {name.owner[:100]!r} has as many open children as one decision can hold"
            raise ApiError(ErrorCode.TRANSACTION_ABORTABLE, detail)

    def check_own_end(self, stored: TransactionStored, is_commit: bool) -> None:
        """A child may abort itself; committed it is with its step."""
        if is_commit and child_name(stored.transactional_id) is not None:
            detail = f"{stored.transactional_id[:100]!r} is committed by its group's step, never by itself"
            raise ApiError(ErrorCode.INVALID_TXN_STATE, detail)


def _name(child: TransactionStored) -> ChildName:
    name = child_name(child.transactional_id)
    if name is None:  # the table holds children under their owners
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, f"{child.transactional_id!r} is no child")
    return name


def _check_sizes(wish: OpenGroupWish) -> None:
    if len(wish.run) != RUN_BYTES:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a run id has {RUN_BYTES} bytes, not {len(wish.run)}")
    if len(wish.place.encode()) > PLACE_BYTES_MAX:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"a place has at most {PLACE_BYTES_MAX} bytes")
    if wish.next_sequence < 0:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{wish.next_sequence} is no step of a group; they count from 0")

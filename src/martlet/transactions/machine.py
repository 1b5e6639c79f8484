"""The transactions machine: producers get their ids, transactions grow, end, and are forgotten.

Rules: a handler looks at the one record of an id, decides by `transitions`, and returns the record that is to stand
from then on. Nothing here is remembered beside the records: a new leader that has replayed them goes on where the last
one stopped. Which generation a client speaks is said by the version of its request; both are served always.

How it works: while a transaction is decided and its markers are on their way, everything about its id is answered with
CONCURRENT_TRANSACTIONS, before its pair is even compared: it may be the next pair already. The broker's shell may wait
for the end instead of passing that error on. The markers are one effect; it is started when the decision is committed
and started again by every new leader, so a marker may come twice.

Invariants:
TXN-3 A decision is stored before a marker is written, and all markers are written before the completion is stored.
TXN-4 No request, time-out or outcome of an ended transaction changes anything of a later one.
TXN-5 An id in use never holds a pair that was given before.

Proved by: tests/unit/transactions/test_machine.py, tests/properties/test_transactions_machine.py
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicPartition
from martlet.coordinator.result import CancelTimer, Result, SetTimer, TimerKey
from martlet.transactions.expiry import SWEEP, SWEEP_INTERVAL_MS, Expiry
from martlet.transactions.names import is_owner
from martlet.transactions.records import NO_PAIR, ProducerPair, TransactionRecord, TransactionStored
from martlet.transactions.requests import (
    TIMEOUT_NEVER,
    InitialisedProducer,
    InitWish,
    OfTransaction,
    TransactionFilter,
    TransactionsOptions,
    WriteMarkers,
)
from martlet.transactions.states import TransactionState
from martlet.transactions.table import TransactionTable
from martlet.transactions.transaction_groups import (
    EndGroupWish,
    GroupEnded,
    GroupOpened,
    OpenGroupWish,
    TransactionGroups,
)
from martlet.transactions.transitions import (
    LAST_CLIENT_EPOCH,
    FreshId,
    Generation,
    check_expected_id,
    client_pair,
    fenced,
    holds_two_pairs,
    initialised,
    kept,
    newcomer,
    pair_after,
    with_partitions,
)
from martlet.transactions.work import TransactionWork, timeout_key

_MARKERS: Final = "markers"
_MARKERS_AGAIN_MS: Final = 1_000


class TransactionsMachine:
    """All transactional ids of one partition of `__transaction_state`; hosted by the coordinator runtime."""

    def __init__(self, options: TransactionsOptions, fresh_id: FreshId) -> None:
        self.table = TransactionTable()
        self._options = options
        self._fresh_id = fresh_id
        self._groups = TransactionGroups(self.table, options, fresh_id)
        self._expiry = Expiry(self.table, options)

    # --- producers

    def init_producer_id(
        self, wish: InitWish, now_ms: int
    ) -> Result[TransactionRecord, InitialisedProducer | ApiError]:
        """Give the producer a pair that fences all before it; an open transaction of theirs is aborted first.

        The abort is answered with CONCURRENT_TRANSACTIONS: the client asks again.
        """
        timeout_ms = self._check_init(wish)
        stored = self.table.get(wish.transactional_id)
        if stored is None:
            stored = newcomer(wish.transactional_id, self._fresh_id(), timeout_ms)
        _check_not_prepared(stored)
        if wish.expected is not None:
            check_expected_id(stored, wish.expected)
        if stored.state is not TransactionState.ONGOING:
            record = initialised(stored, wish.expected, timeout_ms, self._fresh_id, now_ms)
            return Result(InitialisedProducer(client_pair(record)), [record])
        if wish.keep_prepared:
            record = kept(stored, timeout_ms, self._fresh_id, now_ms)
            data_pair = ProducerPair(stored.producer_id, stored.producer_epoch)
            timers = _timers(record, now_ms)
            return Result(InitialisedProducer(client_pair(record), data_pair), [record], timers)
        work = self._work(now_ms)
        work.decide(stored, is_commit=False, generation=Generation.SECOND, by_client=False)
        return work.result(_concurrent(stored, "the transaction of its last producer is being aborted"))

    def _check_init(self, wish: InitWish) -> int:
        """The time-out that counts."""
        options, timeout_ms = self._options, wish.timeout_ms
        _check_id(wish.transactional_id)
        self._groups.check_child(wish.transactional_id)
        if wish.two_phase and not options.two_phase:
            detail = "two-phase commit is not enabled (transaction.two.phase.commit.enable)"
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, detail)
        if wish.keep_prepared and not options.two_phase:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, "prepared transactions are not enabled")
        if wish.two_phase:
            return TIMEOUT_NEVER
        if not 0 < timeout_ms <= options.max_timeout_ms:
            detail = f"a time-out of {timeout_ms} ms; 1 to {options.max_timeout_ms} are allowed"
            raise ApiError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, detail)
        return timeout_ms

    # --- partitions

    def add_partitions(
        self, of: OfTransaction, partitions: frozenset[TopicPartition], generation: Generation, now_ms: int
    ) -> Result[TransactionRecord, None]:
        """Have the partitions in the transaction, which is opened with the first; without a record if they are."""
        stored = self._known(of)
        _check_not_prepared(stored)
        _check_pair(stored, of.pair)
        if holds_two_pairs(stored):
            raise ApiError(ErrorCode.INVALID_TXN_STATE, "a prepared transaction takes no more partitions")
        is_open = stored.state is TransactionState.ONGOING
        if is_open and partitions <= stored.partitions:
            return Result()
        record = with_partitions(stored, partitions, generation, now_ms)
        self._groups.check_child_may_grow(record)
        if len(record.partitions) > self._options.partitions_max:
            detail = f"a transaction has at most {self._options.partitions_max} partitions"
            raise ApiError(ErrorCode.TRANSACTION_ABORTABLE, detail)
        return Result(None, [record], () if is_open else _timers(record, now_ms))

    def verify_partitions(
        self, of: OfTransaction, partitions: frozenset[TopicPartition], now_ms: int
    ) -> Result[TransactionRecord, frozenset[TopicPartition]]:
        """Those of the partitions that are not in the open transaction; changes nothing."""
        stored = self._known(of)
        _check_pair(stored, of.pair)
        _check_not_prepared(stored)
        return Result(partitions - stored.partitions)

    # --- ends

    def end_transaction(
        self, of: OfTransaction, is_commit: bool, generation: Generation, now_ms: int
    ) -> Result[TransactionRecord, ProducerPair]:
        """Decide; the answer is the pair of the next transaction, which the first generation does not get."""
        stored = self._known(of)
        if generation is Generation.FIRST:
            _check_pair(stored, of.pair)
            _check_not_prepared(stored)
            is_repeat = _is_repeat_of_first(stored, is_commit)
        else:
            _check_not_prepared(stored)
            is_repeat = _is_repeat_of_second(stored, of.pair, is_commit)
        if is_repeat:
            return Result(NO_PAIR if generation is Generation.FIRST else client_pair(stored))
        self._groups.check_own_end(stored, is_commit)
        work = self._work(now_ms)
        prepared = work.decide(stored, is_commit=is_commit, generation=generation, by_client=True)
        return work.result(NO_PAIR if generation is Generation.FIRST else pair_after(prepared))

    # --- groups of transactions

    def open_group(self, wish: OpenGroupWish, now_ms: int) -> Result[TransactionRecord, GroupOpened]:
        """A run of a program takes its group over, and what older runs left open is aborted."""
        return self._groups.open_group(wish, self._work(now_ms))

    def end_group(self, wish: EndGroupWish, now_ms: int) -> Result[TransactionRecord, GroupEnded]:
        """Commit the winners and abort the rest, in one append with the step that this ends."""
        return self._groups.end_group(wish, self._work(now_ms))

    # --- tools

    def describe(self, transactional_id: str, now_ms: int) -> Result[TransactionRecord, TransactionStored]:
        """What stands of an id."""
        _check_id(transactional_id)
        stored = self.table.get(transactional_id)
        if stored is None:
            name = transactional_id[:100]
            raise ApiError(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, f"there is no transactional id {name!r}")
        return Result(stored)

    def list_transactions(
        self, wanted: TransactionFilter, now_ms: int
    ) -> Result[TransactionRecord, list[TransactionStored]]:
        """The ids of this shard that pass; an age is that of an open or decided transaction."""
        return Result([stored for stored in self.table.all() if _passes(stored, wanted, now_ms)])

    def statistics(self) -> Mapping[TransactionState, int]:
        """How many ids are in each state."""
        counts = dict.fromkeys(TransactionState, 0)
        for stored in self.table.all():
            counts[stored.state] += 1
        return counts

    def oldest_age_ms(self, now_ms: int) -> int:
        """How long the oldest transaction without an end has been open; 0 when there is none."""
        began = (stored.started_at_ms for stored in self.table.all() if not stored.state.is_idle)
        return max(0, now_ms - min(began, default=now_ms))

    # --- time, effects and the log

    def on_loaded(self, now_ms: int) -> Result[TransactionRecord]:
        work = self._work(now_ms)
        work.timers.append(SetTimer(SWEEP, SWEEP_INTERVAL_MS))
        for stored in self.table.all():
            if stored.state.is_prepared:
                work.carry_out(stored)
            elif stored.state is TransactionState.ONGOING:
                work.timers += _timers(stored, now_ms)
        return work.result()

    def on_timer(self, key: TimerKey, now_ms: int) -> Result[TransactionRecord]:
        if key == SWEEP:
            return self._expiry.sweep(now_ms)
        work = self._work(now_ms)
        stored = self.table.get(key[1])
        if stored is not None:
            if key[0] == _MARKERS and stored.state.is_prepared:
                work.carry_out(stored)
            elif key == timeout_key(stored) and stored.state is TransactionState.ONGOING:
                work.decide(stored, is_commit=False, generation=Generation.SECOND, by_client=False)
        return work.result()

    def on_effect_done(self, effect: object, outcome: object, now_ms: int) -> Result[TransactionRecord]:
        if not isinstance(effect, WriteMarkers):
            return Result()
        stored = self.table.get(effect.transactional_id)
        if stored is None or not stored.state.is_prepared or effect.pair != (stored.producer_id, stored.producer_epoch):
            return Result()
        if isinstance(outcome, ApiError):
            return Result(timers=[SetTimer((_MARKERS, effect.transactional_id), _MARKERS_AGAIN_MS)])
        work = self._work(now_ms)
        work.complete(stored)
        return work.result()

    def topics_changed(
        self, changed: Collection[str], deleted: Collection[str], now_ms: int
    ) -> Result[TransactionRecord]:
        """Deleted topics need nothing here: who writes the markers leaves out what does not exist."""
        return Result()

    def topic_names(self) -> Iterable[str]:
        return ()

    def live_records(self) -> Iterator[Sequence[TransactionRecord]]:
        """Everything that the log says of transactions, for a snapshot."""
        return self.table.live_records()

    def replay(self, record: TransactionRecord) -> None:
        self.table.replay(record)

    # --- checks

    def _work(self, now_ms: int) -> TransactionWork:
        return TransactionWork(self._fresh_id, now_ms)

    def _known(self, of: OfTransaction) -> TransactionStored:
        _check_id(of.transactional_id)
        if is_owner(of.transactional_id):
            raise ApiError(ErrorCode.INVALID_REQUEST, "the owner of a group has no transaction of its own")
        stored = self.table.get(of.transactional_id)
        if stored is None:
            name = of.transactional_id[:100]
            raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"no producer has the transactional id {name!r}")
        return stored


def _check_id(transactional_id: str) -> None:
    if not transactional_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "a transactional id is not empty")


def _check_not_prepared(stored: TransactionStored) -> None:
    if stored.state.is_prepared:
        raise _concurrent(stored, "the end of its last transaction is being carried out")


def _concurrent(stored: TransactionStored, reason: str) -> ApiError:
    name = stored.transactional_id[:100]
    return ApiError(ErrorCode.CONCURRENT_TRANSACTIONS, f"{name!r} has to wait: {reason}")


def _check_pair(stored: TransactionStored, pair: ProducerPair) -> None:
    """Raise unless the producer is the one that stands."""
    own = client_pair(stored)
    if pair.id != own.id:
        raise _other_id(stored, pair)
    if pair.epoch != own.epoch:
        raise fenced(stored)


def _other_id(stored: TransactionStored, pair: ProducerPair) -> ApiError:
    name = stored.transactional_id[:100]
    detail = f"{name!r} belongs to producer {client_pair(stored).id}, not to {pair.id}"
    return ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, detail)


def _no_transaction(stored: TransactionStored, is_commit: bool) -> ApiError:
    verb = "commit" if is_commit else "abort"
    name = stored.transactional_id[:100]
    return ApiError(ErrorCode.INVALID_TXN_STATE, f"{name!r} is {stored.state.label}: there is nothing to {verb}")


def _is_repeat_of_first(stored: TransactionStored, is_commit: bool) -> bool:
    """Whether what is asked for is done already; raises when it cannot be."""
    if stored.state is TransactionState.ONGOING:
        return False
    done = TransactionState.COMPLETE_COMMIT if is_commit else TransactionState.COMPLETE_ABORT
    if stored.state is not done:
        raise _no_transaction(stored, is_commit)
    return True


def _is_repeat_of_second(stored: TransactionStored, pair: ProducerPair, is_commit: bool) -> bool:
    """The same where the epoch tells this transaction from the last; an abort without a transaction is an empty one."""
    state, own = stored.state, client_pair(stored)
    is_complete = state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT)
    has_raised = is_complete and stored.client_version == Generation.SECOND.value
    is_rotated = (
        has_raised and own.epoch == 0 and pair.id == stored.previous_producer_id and pair.epoch >= LAST_CLIENT_EPOCH
    )
    if pair.id != own.id and not is_rotated:
        raise _other_id(stored, pair)
    is_previous = is_rotated or (has_raised and pair.epoch == own.epoch - 1)
    if pair.epoch != own.epoch and not is_previous:
        raise fenced(stored)
    if not is_previous:
        if is_commit and state is not TransactionState.ONGOING:
            raise _no_transaction(stored, is_commit)
        return False
    if is_commit and state is TransactionState.COMPLETE_ABORT:
        raise fenced(stored)  # it was timed out; a client ends at "invalid state", and begins again at this
    if not is_commit and state is TransactionState.COMPLETE_COMMIT:
        raise _no_transaction(stored, is_commit)
    return True


def _timers(stored: TransactionStored, now_ms: int) -> list[SetTimer | CancelTimer]:
    """When an open transaction is given up; one that is ended from outside never is."""
    if stored.timeout_ms == TIMEOUT_NEVER:
        return [CancelTimer(timeout_key(stored))]
    return [SetTimer(timeout_key(stored), stored.started_at_ms + stored.timeout_ms - now_ms)]


def _passes(stored: TransactionStored, wanted: TransactionFilter, now_ms: int) -> bool:
    if wanted.states is not None and stored.state not in wanted.states:
        return False
    if wanted.producer_ids is not None and stored.producer_id not in wanted.producer_ids:
        return False
    if wanted.older_than_ms < 0:
        return True
    return not stored.state.is_idle and now_ms - stored.started_at_ms > wanted.older_than_ms

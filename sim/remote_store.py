"""The metadata store across the simulated network: requests and answers travel, get lost and arrive late.

How it works: `StoreServer` is the store's machine around a `SimStoreState`; `RemoteStore` is one process' connection to
it, a `MetaStore`. A request is a packet: once sent it is served when it arrives, whether the process that sent it
still waits, has given up or has died. So a commit whose answer does not come in time is really unknown: it may have
happened, and it may happen later.

Faults: cut the links between a machine and `STORE_NAME` either way; `stop` and `start` the server; `compact` its state;
`lose_next_commit` (before it happened, after it, or it happens long after its sender has given up …); `hold_watches` of
one client, which then hears nothing new while its calls go on; `break_watches`; `SimStoreState.end_lease_of` and
`restart_leases` for leases that end early or late. Leases run by the store's clock, never by the client's.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Collection, Mapping
from enum import Enum
from typing import Final, TypeVar, cast

from martlet.base.clock import Clock
from martlet.cluster.store import (
    Change,
    CommitResult,
    Entry,
    LeaseId,
    Listing,
    StoreClosed,
    StoreError,
    StoreUnavailable,
    UnknownOutcome,
    check_commit,
    check_key,
)
from sim.link import Link
from sim.scheduler import NS_PER_MS, Alarm, SimScheduler
from sim.store import SimStoreState

STORE_NAME: Final = "store"
_T = TypeVar("_T")
_Changes = list[Change]

_ANSWER_WAIT_MS: Final = 5_000
_POLL_MS: Final = 2_000
_LATER_MS: Final = 2_000


class CommitFault(Enum):
    """What becomes of a commit whose sender gets no answer."""

    BEFORE = "never happens"
    AFTER = "has happened"
    LATE = "happens after its sender has given up"
    DEAF = "has happened, and its sender's watches hear nothing for a while"


class StoreServer:
    """The store's machine: serves requests when they arrive and ends leases when their time has come."""

    def __init__(self, scheduler: SimScheduler, clock: Clock, state: SimStoreState | None = None) -> None:
        self.state = state if state is not None else SimStoreState()
        self.is_up = True
        self.answer_wait_ms = _ANSWER_WAIT_MS
        """How long its clients wait for an answer."""
        self._scheduler = scheduler
        self._clock = clock
        self._polls: list[Callable[..., None]] = []
        self._held_clients: list[str] = []
        self._commit_faults: deque[tuple[CommitFault, str]] = deque()
        self._lease_alarm: Alarm | None = None
        # The state wakes those who wait by `set()`; one listener here keeps the order of all who wait.
        self.state.moved.add(cast(asyncio.Event, _Moved(self._answer_polls)))

    def stop(self) -> None:
        """Requests get lost; leases run on and end when it is back."""
        self._scheduler.note(STORE_NAME, "stop")
        self.is_up = False

    def start(self) -> None:
        self._scheduler.note(STORE_NAME, "start")
        self.is_up = True
        self.end_leases()

    def end_leases(self) -> None:
        """End what has run out and check again when the next one does."""
        if self.is_up:
            self.state.end_expired_leases(self._clock.now_ms())
        next_ms = self.state.next_expiry_ms()
        if self._lease_alarm is not None:
            self._lease_alarm.cancel()
        if next_ms is not None and self.is_up:
            wait_ms = max(1, next_ms - self._clock.now_ms())
            self._lease_alarm = self._scheduler.alarm_in(wait_ms * NS_PER_MS, self.end_leases)

    # --- faults

    def lose_next_commit(self, fault: CommitFault, *, of: str = "") -> None:
        """The next commit that changes a key with this beginning is not answered; several calls queue up."""
        self._scheduler.note(STORE_NAME, f"next commit of {of} {fault.value}")
        self._commit_faults.append((fault, of))

    def hold_watches(self, client: str) -> None:
        """This client's watches hear nothing new until `release_watches`: nothing bounds the delay of a watch."""
        self._scheduler.note(STORE_NAME, f"hold watches {client}")
        self._held_clients.append(client)

    def release_watches(self) -> None:
        self._scheduler.note(STORE_NAME, "release watches")
        self._held_clients.clear()
        self._answer_polls()

    def break_watches(self) -> None:
        """Every watch ends with an error; the watcher has to begin again where it was."""
        self._scheduler.note(STORE_NAME, "break watches")
        polls, self._polls = self._polls, []
        for poll in polls:
            poll(StoreUnavailable("the watch was broken off"))

    def heal(self) -> None:
        """No fault from now on; what was lost stays lost."""
        self._commit_faults.clear()
        self.release_watches()
        if not self.is_up:
            self.start()

    # --- requests

    def grant(self, ttl_ms: int) -> LeaseId:
        lease = self.state.grant(ttl_ms, self._clock.now_ms())
        self.end_leases()
        return lease

    def keep_alive(self, lease: LeaseId) -> None:
        self.state.keep_alive(lease, self._clock.now_ms())

    def commit(
        self,
        client: str,
        keys: Collection[str],
        apply: Callable[[], CommitResult],
        answer: Callable[[CommitResult | StoreError], None],
    ) -> None:
        """Make the change and answer, unless this one is to be lost on one side or the other."""
        fault = None
        if self._commit_faults and any(key.startswith(self._commit_faults[0][1]) for key in keys):
            fault = self._commit_faults.popleft()[0]
        if fault is CommitFault.BEFORE:
            return
        if fault is CommitFault.LATE:
            late_ms = self.answer_wait_ms + _LATER_MS
            self._scheduler.alarm_in(late_ms * NS_PER_MS, lambda: self.commit(client, (), apply, lambda _: None))
            return
        if not self.is_up:
            return
        if fault is CommitFault.DEAF:
            self.hold_watches(client)
            deaf_ms = self.answer_wait_ms + _LATER_MS
            self._scheduler.alarm_in(deaf_ms * NS_PER_MS, self.release_watches)
        try:
            result: CommitResult | StoreError = apply()
        except StoreError as error:
            result = error
        if fault is None:
            answer(result)

    def poll(self, client: str, after_revision: int, answer: Callable[[list[Change] | StoreError], None]) -> None:
        """Answer with what came after the revision, as soon as there is something, or with nothing after a while."""
        is_answered = False

        def poll(broken: StoreError | None = None, *, is_last: bool = False) -> None:
            nonlocal is_answered
            if is_answered or not self.is_up:
                return
            found: list[Change] | StoreError = []
            try:
                if broken is not None:
                    found = broken
                elif client not in self._held_clients:
                    found = self.state.changes_after(after_revision)
            except StoreError as error:
                found = error
            if found or is_last:
                is_answered = True
                answer(found)
            else:
                self._polls.append(poll)

        poll()
        if not is_answered:
            wait_ms = min(_POLL_MS, self.answer_wait_ms // 2)
            self._scheduler.alarm_in(wait_ms * NS_PER_MS, lambda: poll(is_last=True))

    def _answer_polls(self) -> None:
        polls, self._polls = self._polls, []
        for poll in polls:
            poll()


class _Moved:
    """Stands among the events that a `SimStoreState` sets."""

    def __init__(self, moved: Callable[[], None]) -> None:
        self.set = moved


class RemoteStore:
    """One process' connection to the store; made inside its event loop."""

    def __init__(self, server: StoreServer, there: Link, back: Link, *, client: str = "") -> None:
        self._server = server
        self._client = client
        self._there = there
        self._back = back
        self._loop = asyncio.get_running_loop()
        self._closed: asyncio.Future[None] = self._loop.create_future()

    async def get(self, key: str) -> Entry | None:
        check_key(key)
        return await self._ask(lambda: self._server.state.entries.get(key))

    async def list(self, prefix: str) -> Listing:
        state = self._server.state
        return await self._ask(lambda: Listing(state.revision, tuple(state.under(prefix))))

    async def commit(
        self,
        compares: Mapping[str, int],
        puts: Mapping[str, bytes],
        deletes: Collection[str] = (),
        *,
        delete_prefixes: Collection[str] = (),
        lease: LeaseId | None = None,
    ) -> CommitResult:
        check_commit(compares, puts, deletes, delete_prefixes)
        compares, puts = dict(compares), dict(puts)
        apply = self._server.state.apply
        try:
            return await self._commit(
                tuple(puts), lambda: apply(compares, puts, tuple(deletes), tuple(delete_prefixes), lease)
            )
        except StoreUnavailable as error:
            raise UnknownOutcome("no answer from the metadata store; the commit may have happened") from error

    async def watch(self, prefix: str, after_revision: int) -> AsyncGenerator[Change, None]:
        position = after_revision
        while not self._closed.done():
            try:
                changes = await self._poll(position)
            except StoreClosed:
                return
            for change in changes:
                position = change.revision
                yield Change(position, tuple(event for event in change.events if event.key.startswith(prefix)))

    async def grant(self, ttl_ms: int) -> LeaseId:
        return await self._ask(lambda: self._server.grant(ttl_ms))

    async def keep_alive(self, lease: LeaseId) -> None:
        await self._ask(lambda: self._server.keep_alive(lease))

    async def revoke(self, lease: LeaseId) -> None:
        await self._ask(lambda: self._server.state.end_lease(lease))

    async def close(self) -> None:
        if not self._closed.done():
            self._closed.set_result(None)
        await asyncio.sleep(0)

    # --- how

    async def _ask(self, serve: Callable[[], _T]) -> _T:
        answer: asyncio.Future[_T] = self._loop.create_future()

        def arrive() -> None:
            if not self._server.is_up:
                return
            self._server.end_leases()
            try:
                result = serve()
            except StoreError as error:
                failure = error
                self._back.carry(lambda: self._settle(answer, lambda: answer.set_exception(failure)))
            else:
                self._back.carry(lambda: self._settle(answer, lambda: answer.set_result(result)))

        self._there.carry(arrive)
        return await self._answered(answer)

    async def _commit(self, keys: Collection[str], apply: Callable[[], CommitResult]) -> CommitResult:
        answer: asyncio.Future[CommitResult] = self._loop.create_future()

        def reply(result: CommitResult | StoreError) -> None:
            def settle() -> None:
                if isinstance(result, StoreError):
                    answer.set_exception(result)
                else:
                    answer.set_result(result)

            self._back.carry(lambda: self._settle(answer, settle))

        def arrive() -> None:
            if self._server.is_up:
                self._server.end_leases()
                self._server.commit(self._client, keys, apply, reply)

        self._there.carry(arrive)
        return await self._answered(answer)

    async def _poll(self, position: int) -> _Changes:
        answer: asyncio.Future[_Changes] = self._loop.create_future()

        def reply(found: _Changes | StoreError) -> None:
            def settle() -> None:
                if isinstance(found, StoreError):
                    answer.set_exception(found)
                else:
                    answer.set_result(found)

            self._back.carry(lambda: self._settle(answer, settle))

        self._there.carry(lambda: self._server.poll(self._client, position, reply) if self._server.is_up else None)
        return await self._answered(answer)

    def _settle(self, answer: asyncio.Future[_T], settle: Callable[[], None]) -> None:
        self._loop.call_soon(lambda: None if answer.done() else settle())

    async def _answered(self, answer: asyncio.Future[_T]) -> _T:
        waiting: set[asyncio.Future[_T] | asyncio.Future[None]] = {answer, self._closed}
        await asyncio.wait(waiting, timeout=self._server.answer_wait_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        if self._closed.done():
            raise StoreClosed("the metadata store has been closed")
        raise StoreUnavailable("the metadata store did not answer in time")

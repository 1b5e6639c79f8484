"""Keeps this process's lease in the metadata store, and fences the process when it cannot.

Rules: `may_act` is the one question that everything which serves as a leader asks, and its answer rests on the local
clock alone (`LeaseTerm` of `martlet.cluster.leases`). Renewals run in the background, over a connection of their
own, so that a busy broker keeps its lease; they are made only while the broker's vital signs are fresh, so that a
stuck one loses it.

How it works: three renewals are tried in the time of a lease. A store that does not answer changes nothing until the
deadline; after it the process acts no more, and goes on by itself when a renewal is answered well. If the store says
that the lease is gone, the process takes a new one and shows itself alive under it as the process it is: it acts again
when its own image has that commit, and with it whatever others decided while it was away.

Invariants:
MEM-5 nothing is acted on after the deadline of the last lease that was answered for;
MEM-6 under a new lease nothing is acted on before the image holds everything up to the commit that showed it.

Proved by: tests/unit/broker/membership/test_membership.py,
tests/unit/broker/membership/test_lease_keeper.py, tests/cluster/test_membership_etcd.py
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from martlet.base.errors import DiskFull, MartletError
from martlet.base.threads import BackgroundWork, RunInBackground
from martlet.broker.ground.ports import BrokerPorts
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.ground.vital_signs import VitalSigns
from martlet.cluster.leases import LeaseTerm
from martlet.cluster.store import (
    LeaseId,
    LeaseLost,
    MetaStore,
    StoreClosed,
    StoreUnavailable,
    UnknownOutcome,
)

logger = logging.getLogger(__name__)

_LOOKS_PER_LEASE: Final = 12
_ANSWERS_PER_LEASE: Final = 2
"""A renewal is given up after this part of a lease, so that another can still be tried."""

_RETRY_SECONDS: Final = 0.5

_PASSING = (StoreUnavailable, UnknownOutcome, DiskFull, TimeoutError)


@dataclass(slots=True)
class _Held:
    """One lease and the time in which it may be acted on."""

    lease: LeaseId
    term: LeaseTerm
    is_lost: bool = False


class LeaseKeeper:
    """Made and closed by `membership.py`; `may_act` and `silence_ms` may be asked from anywhere."""

    def __init__(
        self,
        ports: BrokerPorts,
        settings: BrokerSettings,
        store: MetaStore,
        vital_signs: VitalSigns,
        show: Callable[[LeaseId], Awaitable[bool]],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`show` makes the process alive under a lease; False: it lost a comparison and is to be tried again."""
        self._open_store = ports.open_store
        self._run_in_background: RunInBackground = ports.run_in_background
        self._clock = ports.clock
        self._settings = settings
        self._lease_ms = settings.lease_ms
        self._store = store
        self._vital_signs = vital_signs
        self._show = show
        self._on_failure = on_failure
        self._home = asyncio.get_running_loop()
        self._held: _Held | None = None
        self._answered_ms = self._clock.monotonic_ms()
        self._regaining: asyncio.Task[None] | None = None
        self._renewals: BackgroundWork | None = None
        self._complaint = ""
        self._is_silent = False
        self._is_cut_off = False

    # --- what others ask

    def may_act(self) -> bool:
        """Whether this process may act as the leader, the coordinator or the controller that it is (MEM-5)."""
        held = self._held
        return held is not None and held.term.is_held(self._clock.monotonic_ms())

    @property
    def lease(self) -> LeaseId | None:
        """The lease held now, to hang keys on."""
        held = self._held
        return held.lease if held is not None and not held.is_lost else None

    def silence_ms(self) -> int:
        """How long the store has not answered a renewal."""
        return self._clock.monotonic_ms() - self._answered_ms

    # --- its life

    async def obtain(self) -> LeaseId:
        """Take a lease and show the process alive under it, however long the store takes."""
        is_said = False
        while True:
            try:
                held = await self._obtain_once()
            except (*_PASSING, LeaseLost) as error:
                if not is_said:
                    is_said = True
                    logger.warning("metadata: no lease yet (%r); trying again until there is one", error)
            else:
                if held is not None:
                    self._held = held
                    return held.lease
                continue
            await asyncio.sleep(_RETRY_SECONDS)

    def start(self) -> None:
        """Begin to renew what was obtained."""
        self._renewals = self._run_in_background(self._renew, "martlet-lease", self._on_failure)

    def let_go(self) -> None:
        """Act no more, for good: another process is this broker now."""
        self._held = None

    async def aclose(self) -> None:
        """Stop renewing and give the lease back, which shows all brokers at once that this process is gone."""
        if self._renewals is not None:
            await self._renewals.aclose()
        if self._regaining is not None:
            self._regaining.cancel()
            await asyncio.wait([self._regaining])
        lease, self._held = self.lease, None
        if lease is not None:
            try:
                async with asyncio.timeout(self._lease_ms / _ANSWERS_PER_LEASE / 1000):
                    await self._store.revoke(lease)
            except (MartletError, TimeoutError) as error:
                logger.info("metadata: the lease was not given back (%s); it runs out by itself", error)

    # --- on the event loop

    async def _obtain_once(self) -> _Held | None:
        sent_ms = self._clock.monotonic_ms()
        lease = await self._store.grant(self._lease_ms)
        if not await self._show(lease):
            return None
        self._answered_ms = sent_ms
        return _Held(lease, LeaseTerm(self._lease_ms, sent_ms))

    def _lease_lost(self) -> None:
        if self._regaining is None or self._regaining.done():
            logger.warning("metadata: the lease is lost; this broker acts no more until it has another")
            self._regaining = asyncio.create_task(self._regain(), name="martlet-lease-regain")
            self._regaining.add_done_callback(self._regain_ended)

    async def _regain(self) -> None:
        try:
            await self.obtain()
        except StoreClosed:
            return
        self._is_silent = self._is_cut_off = False
        logger.warning("metadata: this broker has a new lease and acts again")

    def _regain_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)

    # --- in the background

    async def _renew(self) -> None:
        store: MetaStore | None = None
        try:
            while True:
                await asyncio.sleep(self._lease_ms / _LOOKS_PER_LEASE / 1000)
                held = self._held
                now_ms = self._clock.monotonic_ms()
                if held is None or held.is_lost or now_ms < held.term.renew_at_ms or not self._is_well(now_ms):
                    continue
                try:
                    async with asyncio.timeout(self._lease_ms / _ANSWERS_PER_LEASE / 1000):
                        store = store or await self._open_store(self._settings, self._clock)
                except _PASSING as error:
                    self._note_silence(held, error)
                else:
                    await self._renew_once(store, held)
        finally:
            if store is not None:
                await store.close()

    async def _renew_once(self, store: MetaStore, held: _Held) -> None:
        sent_ms = self._clock.monotonic_ms()
        try:
            async with asyncio.timeout(self._lease_ms / _ANSWERS_PER_LEASE / 1000):
                await store.keep_alive(held.lease)
        except LeaseLost:
            held.is_lost = True
            held.term.lost()
            self._tell(self._lease_lost)
        except _PASSING as error:
            self._note_silence(held, error)
        else:
            held.term.renewed(sent_ms)
            self._answered_ms = sent_ms
            self._note_answer()

    def _is_well(self, now_ms: int) -> bool:
        complaint = self._vital_signs.complaint(now_ms)
        if bool(complaint) != bool(self._complaint):
            if complaint:
                logger.critical("%s; the lease is not renewed, others will take over", complaint)
            else:
                logger.warning("event loop and disk answer again; the lease is renewed")
        self._complaint = complaint
        return not complaint

    def _note_silence(self, held: _Held, error: Exception) -> None:
        if not self._is_silent:
            self._is_silent = True
            logger.warning("metadata: the lease was not renewed (%r); trying again", error)
        if not self._is_cut_off and not held.term.is_held(self._clock.monotonic_ms()):
            self._is_cut_off = True
            logger.error("metadata: cut off from the store (%r); this broker acts no more until it answers", error)

    def _note_answer(self) -> None:
        if self._is_cut_off:
            logger.warning("metadata: the store answers again; this broker acts again")
        elif self._is_silent:
            logger.info("metadata: the store answers again")
        self._is_silent = self._is_cut_off = False

    def _tell(self, callback: Callable[[], object]) -> None:
        try:
            self._home.call_soon_threadsafe(callback)
        except RuntimeError:
            return  # the broker's loop is gone

"""This process as a member of its cluster: registered once, alive while its lease holds, until it leaves.

How it works: a start reads whose log directory it has (`identity_file.py`), waits for an earlier process of this broker
that still seems alive, registers under a new incarnation, takes a lease, shows itself alive and writes down the
directory's new user; then it takes over what only it can lead. What it proves about its predecessor's logs is in
`_is_clean` and `_has_same_logs`. A full disk does not keep a broker from starting: it shows that it is full, and writes
down who it is once there is space. A process that is to stop says so first, and the controller hands its leaderships
on.

Invariants: MEM-1 no process is registered over one that is alive, unless it has the directory of that one, whose lock
it holds; MEM-2 a process whose broker is registered again, or removed, ends; MEM-3 a log that was put aside unread is
never vouched for; MEM-4 nothing is deleted because it does not fit: a foreign directory is an error that names both.
Proved by: tests/unit/broker/membership/test_membership.py, tests/cluster/test_membership_etcd.py
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from martlet.base.errors import ApiError, DiskFull, ErrorCode, MartletError, MembershipRefused
from martlet.base.ids import BrokerId, Member
from martlet.base.invariant import invariant
from martlet.base.randomness import IdSource
from martlet.broker.ground.disk_space import DiskSpace
from martlet.broker.ground.ports import BrokerPorts
from martlet.broker.ground.settings import BrokerSettings
from martlet.broker.ground.vital_signs import VitalSigns
from martlet.broker.membership.broker_registration import elect_own_partitions, register_broker
from martlet.broker.membership.identity_file import Identity, read_identity, write_identity
from martlet.broker.membership.lease_keeper import LeaseKeeper
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.broker.membership.metadata_commits import MetadataCommits
from martlet.cluster.broker_decisions import Registration
from martlet.cluster.controller_decisions import decide_all, departure_is_done
from martlet.cluster.image import ImageDelta
from martlet.cluster.liveness import BrokerStates, plan_alive, read_states
from martlet.cluster.records import BrokerRecord, LiveRecord
from martlet.cluster.store import LeaseId, StoreClosed, StoreError, StoreUnavailable

logger = logging.getLogger(__name__)

_Done = TypeVar("_Done")

_BOOT_ID_FILE: Final = "/proc/sys/kernel/random/boot_id"
_CHECK_SECONDS: Final = 0.1
_RETRY_SECONDS: Final = 0.5
_NOT_MISSED_MS_MAX: Final = 1_000
_FAREWELL_SECONDS: Final = 0.3
"""In this time publishers learn who leads now; one that finds its connection closed takes longer to find out."""
_GRACE_MS: Final = 2_000
"""A lease may run out a little late."""


@dataclass(frozen=True, slots=True)
class LogsFound:
    """What the start found in the log directory."""

    clean: bool
    """The process before closed everything."""
    whole: bool
    """Nothing is missing that should be there."""
    kept: bool
    """Nothing is missing but what a power loss may take: all that was flushed is there."""
    empty: bool = False
    """There is no log, and no sign that there was one."""
    unread: bool = False
    """Some logs could not be opened, because the device failed or is full; the above is said of the others."""


class Membership:
    """Made at start, joined once, left once."""

    def __init__(
        self,
        commits: MetadataCommits,
        changes: MetadataChanges,
        ports: BrokerPorts,
        settings: BrokerSettings,
        directory: str,
        space: DiskSpace,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self._commits = commits
        self._image = commits.image
        self._changes = changes
        self._disk = ports.disk
        self._clock = ports.clock
        self._settings = settings
        self._directory = directory
        self._space = space
        self._disk_news = asyncio.Event()
        self._following_disk: asyncio.Task[None] | None = None
        self._on_failure = on_failure
        self._id = BrokerId(settings.broker_id)
        self._ids = IdSource(ports.randomness)
        self._identity: Identity | None = None
        self._identity_is_due = False
        self._place = ""
        self._me: Member | None = None
        self._is_leaving = False
        self._moved = asyncio.Event()
        self._vital_signs = VitalSigns(ports.clock, ports.disk, directory, settings.lease_ms, on_failure)
        self.keeper = LeaseKeeper(ports, settings, commits.store, self._vital_signs, self._show_alive, on_failure)

    @property
    def me(self) -> Member:
        """This process, once it has joined."""
        invariant(self._me is not None, "a process is a member from when it has joined")
        return self._me  # type: ignore[return-value]

    def has_lost_cluster(self) -> bool:
        """Whether this process may not act, while others were there who may: the cluster goes on without it."""
        return not self.keeper.may_act() and not self._vital_signs.is_alone

    # --- joining

    async def check(self) -> None:
        """Make sure that this process may be its broker, before anything in the directory is touched."""
        self._identity = identity = read_identity(self._disk, self._directory)
        self._place = self._disk.place_of(self._directory)
        self._check_directory(identity)
        await self._wait_until_free(identity)

    def _begin_attempt(self) -> str:
        """Write down, durably, how this start is called before it is registered."""
        attempt = self._ids.text_id()
        identity, before = self._identity, self._image.broker(self._id)
        if identity is not None:
            if before is not None and identity.is_of(before):
                # An attempt that got no further counts as the last user: it changed nothing.
                identity = replace(identity, incarnation=before.incarnation)
            self._take_identity(replace(identity, attempt=attempt))
        return attempt

    def _take_identity(self, identity: Identity) -> None:
        """Be this user of the directory and write it down, as soon as there is space."""
        is_first = self._identity is None
        self._identity = identity
        try:
            write_identity(self._disk, self._directory, identity)
        except DiskFull as error:
            if is_first:
                raise
            self._identity_is_due = True
            self._space.write_failed(error)
        else:
            self._identity_is_due = False

    async def join(self, registration: Registration, found: LogsFound) -> Member:
        """Register this process and show it alive; the directory is its own from then on."""
        attempt = self._begin_attempt()
        identity = self._identity
        boot_id = (self._disk.read_file(_BOOT_ID_FILE) or b"").decode().strip()
        registration = replace(
            registration,
            boot_id=boot_id,
            clean=self._is_clean(identity, found, boot_id),
            same_logs=self._has_same_logs(identity, found, boot_id),
            new_disk=identity is None and found.empty,
            unread=found.unread,
            gave_up=identity is not None and identity.gave_up,
            predecessor=identity.incarnation if identity is not None else None,
            attempt=attempt,
        )
        if found.unread:
            logger.warning(
                "broker %d could not open all of its logs: what it held counts as incomplete until it is started again "
                "and can open them",
                self._id,
            )
        register = partial(register_broker, self._changes, registration, self._ids, self._clock)
        self._me = me = await until_in_reach("register", register)
        lease = await self.keeper.obtain()
        self._take_identity(Identity(self._image.cluster_id, self._id, me.incarnation, lease, place=self._place))
        if identity is not None:
            await self._end_lease_before(identity.lease)
        return self.me

    def log_is_given_up(self) -> None:
        """A log that could not be opened is about to be put aside: the next process here must know (MEM-3)."""
        identity = self._identity
        if identity is not None and not identity.gave_up:
            identity = replace(identity, gave_up=True)
            write_identity(self._disk, self._directory, identity)
            self._identity, self._identity_is_due = identity, False

    async def start(self) -> None:
        """Begin to keep the lease, and take over what only this broker can lead, under a new epoch (APP-1)."""
        self._vital_signs.start()
        self.keeper.start()
        self._space.on_change = self._disk_news.set
        self._disk_news.set()
        self._following_disk = asyncio.create_task(self._follow_disk(), name="martlet-disk-news")
        self._following_disk.add_done_callback(self._following_ended)
        await until_in_reach("take its partitions", partial(elect_own_partitions, self._changes, self.me))

    def _check_directory(self, identity: Identity | None) -> None:
        if identity is None:
            return
        if identity.broker_id != self._id:
            raise MembershipRefused(
                f"{self._directory} holds the data of broker {identity.broker_id}, not of broker {self._id}: "
                "set broker_id to that, or choose another directory"
            )
        if identity.cluster_id != self._image.cluster_id:
            there = f"holds cluster {self._image.cluster_id}" if self._image.cluster_id else "is empty"
            raise MembershipRefused(
                f"{self._directory} holds data of cluster {identity.cluster_id}, but the metadata store {there}: "
                "bring back the metadata of that cluster, or choose another directory; nothing was changed"
            )

    async def _wait_until_free(self, identity: Identity | None) -> None:
        """Wait while another process of this broker seems alive (MEM-1).

        One that had this very directory is gone: no other can hold the directory's lock. A store that comes back may
        give every lease its full time again, so the waiting begins again with it.
        """
        patience_ms = self._settings.lease_ms + _GRACE_MS
        deadline_ms = self._clock.monotonic_ms() + patience_ms
        is_said = False
        while (live := self._image.live(self._id)) is not None:
            if identity is not None and self._had_this_directory(live, identity):
                return
            if self._clock.monotonic_ms() > deadline_ms:
                raise MembershipRefused(
                    f"broker {self._id} is running already{_where(self._image.broker(self._id))}: stop it first, or "
                    "give this one another broker_id"
                )
            if not is_said:
                is_said = True
                logger.info("broker %d seems to run elsewhere; waiting for its lease to run out", self._id)
            await asyncio.sleep(_CHECK_SECONDS)
            try:
                await self._commits.catch_up()
            except StoreUnavailable:
                deadline_ms = self._clock.monotonic_ms() + patience_ms

    def _had_this_directory(self, live: LiveRecord, identity: Identity) -> bool:
        if self._is_copy(identity):
            return False
        record = self._image.broker(self._id)
        if record is not None and record.incarnation == live.incarnation:
            return identity.is_of(record)
        return live.incarnation == identity.incarnation

    def _is_clean(self, identity: Identity | None, found: LogsFound, boot_id: str) -> bool:
        """Whether it is proven that the process before lost nothing.

        That is so when this is the directory it used, all of it was found, and it was closed cleanly, or it is the very
        same directory, no copy of it, on a machine that has not been restarted since: the page cache then has it all.
        """
        before = self._image.broker(self._id)
        if before is None:
            return False
        if identity is None or not identity.is_of(before):
            logger.warning(
                "broker %d ran last with another log directory, or did not get far: what it held counts as incomplete "
                "until it has caught up with other replicas",
                self._id,
            )
            return False
        if not found.whole:
            logger.warning(
                "broker %d lacks logs, or parts of them: what it held counts as incomplete until it has caught up with "
                "other replicas",
                self._id,
            )
            return False
        return found.clean or (bool(boot_id and boot_id == before.boot_id) and not self._is_copy(identity))

    def _has_same_logs(self, identity: Identity | None, found: LogsFound, boot_id: str) -> bool:
        """Whether these are the logs of the process before, less at most what was in memory when the machine stopped.

        Enough for a partition that no other replica held completely. A machine that was not restarted has lost nothing
        of that kind, so what is missing then was damaged.
        """
        before = self._image.broker(self._id)
        if before is None or identity is None or not identity.is_of(before) or self._is_copy(identity):
            return False
        return found.kept and (found.whole or boot_id != before.boot_id)

    def _is_copy(self, identity: Identity) -> bool:
        """Whether this is not the directory that was used last but a copy, made at an unknown time."""
        return identity.place not in ("", self._place)

    async def _end_lease_before(self, lease: LeaseId) -> None:
        """What else hung on the predecessor's lease, the controller's role for example, is free at once."""
        try:
            await self._commits.store.revoke(lease)
        except StoreError as error:
            logger.info("metadata: the lease of the process before was left to run out (%s)", error)

    # --- being alive

    async def _show_alive(self, lease: LeaseId) -> bool:
        broker = self._own_record()
        live = self._image.live(self._id)
        plan = plan_alive(broker, live, leaving=self._is_leaving, full=self._space.is_full)
        return await self._commits.commit(plan, lease=lease)

    async def _follow_disk(self) -> None:
        """Tell the others whether the disk is full, and write down what a full one did not take."""
        while True:
            await self._disk_news.wait()
            self._disk_news.clear()
            if self._identity is not None and self._identity_is_due and not self._space.is_full:
                self._take_identity(self._identity)
            try:
                while (lease := self.keeper.lease) is not None and self._is_shown_wrongly():
                    await self._show_alive(lease)
            except StoreClosed:
                return
            except MartletError as error:
                logger.info("the others could not be shown yet whether the disk is full: %s", error)
                await asyncio.sleep(_RETRY_SECONDS)
                self._disk_news.set()

    def _is_shown_wrongly(self) -> bool:
        live = self._image.live(self._id)
        return live is not None and live.full != self._space.is_full

    def _following_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_failure(error)

    def _own_record(self) -> BrokerRecord:
        record = self._image.broker(self._id)
        if record is None:
            raise MembershipRefused(f"broker {self._id} was removed from the cluster")
        if record.incarnation != self.me.incarnation:
            raise MembershipRefused(
                f"broker {self._id} was registered again by another process{_where(record)}; this one ends"
            )
        return record

    def follow(self, delta: ImageDelta) -> None:
        """A step of the image: end if this process is no longer its broker (MEM-2)."""
        self._moved.set()
        if delta.live and self._me is not None and self._is_shown_wrongly():
            self._disk_news.set()
        if delta.live or delta.brokers:
            self._vital_signs.is_alone = not any(broker != self._id for broker in read_states(self._image).alive)
        for change in delta.brokers:
            record = change.after or change.before
            if record is None or record.id != self._id or self._me is None:
                continue
            try:
                self._own_record()
            except MembershipRefused as error:
                self.keeper.let_go()
                self._on_failure(error)

    # --- leaving

    async def leave(self, timeout_ms: int) -> None:
        """Have the leaderships handed to others, as far as there are any; returns in time whatever happens."""
        if not self._states().staying:
            return  # there is no other broker
        logger.info("broker %d leaves its cluster", self._id)
        hands_over = not departure_is_done(self._image, self._states(), self._id)
        self._is_leaving = True
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                while not await self._show_leaving():
                    continue
                await self._wait_until(lambda: departure_is_done(self._image, self._states(), self._id))
        except TimeoutError:
            logger.warning("not all leaderships were taken over within %d ms; stopping all the same", timeout_ms)
        except MartletError as error:
            logger.warning("the leaderships could not be handed over (%s); stopping all the same", error)
        else:
            await self._wait_until_not_missed(min(timeout_ms, _NOT_MISSED_MS_MAX))
            if hands_over:
                await asyncio.sleep(min(timeout_ms / 1000, _FAREWELL_SECONDS))

    async def _wait_until_not_missed(self, timeout_ms: int) -> None:
        """Wait until leaders no longer wait for this follower, where the controller can have that.

        Without it they would wait from when the copying stops here until the lease is given back.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await self._wait_until(lambda: not self._would_be_missed())
        except TimeoutError:
            return

    def _would_be_missed(self) -> bool:
        return any(
            self._id in decision.before.isr_ids() and self._id not in decision.after.isr_ids()
            for decision in decide_all(self._image, self._states())
        )

    async def _wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._moved.clear()
            await self._moved.wait()

    async def _show_leaving(self) -> bool:
        lease = self.keeper.lease
        return lease is None or await self._show_alive(lease)

    def _states(self) -> BrokerStates:
        """Who is there, this process counted among those that leave."""
        states = read_states(self._image)
        return replace(states, leaving=states.leaving | {self._id})

    async def aclose(self) -> None:
        """Give the lease back; from here on the process is gone for all brokers."""
        if self._following_disk is not None:
            self._following_disk.cancel()
            await asyncio.gather(self._following_disk, return_exceptions=True)
        await self._vital_signs.aclose()
        await self.keeper.aclose()


async def until_in_reach(what: str, attempt: Callable[[], Awaitable[_Done]]) -> _Done:
    """A step of the start, tried until the metadata store is there for it; every other refusal comes out."""
    while True:
        try:
            return await attempt()
        except ApiError as error:
            if error.code != ErrorCode.REQUEST_TIMED_OUT:
                raise
            logger.warning("the broker could not %s yet (%s); trying again", what, error)
            await asyncio.sleep(_RETRY_SECONDS)


def _where(record: BrokerRecord | None) -> str:
    endpoint = record.broker_endpoint if record is not None else None
    return f" at {endpoint.address}" if endpoint is not None else ""

"""A watch over etcd: one stream of changes that survives broken connections and notices when it has died.

Rules: every watch follows all keys under the root, whatever prefix its caller asked for; so each revision of ours
shows up in it, and the order of revisions is the stream's.

How it works: the stream is asked to begin at the last revision delivered, not after it, and what is known already is
dropped. etcd forgets deletions of the very revision it compacts to and does not say so; asked this way it answers
that the history is gone (STO-9). When a connection breaks, the next member continues from where we are (STO-10).

Revisions of other programs in the same etcd do not show up under our root, and a dead stream seems like one on
which nothing happens. A guard takes care of both: when the watch has not reached a revision that the store has
returned, or that a periodic read has found, it writes the tick key. The tick comes down the stream, which makes
the watch reach a later revision, or it does not, and the stream is dead and replaced (STO-11). An etcd of our own sees
hardly any ticks.

Invariants: STO-4 and STO-5 of `martlet.cluster.store`.
STO-9 a revision is delivered whole or not at all;
STO-10 the next revision asked for is the last one delivered, never one that a header named;
STO-11 a stream that delivers nothing is replaced within twice `probe_seconds` of the first missing revision.

Proved by: tests/unit/stores/test_etcd_streams.py, tests/stores/test_etcd_watch.py
"""

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Final

from martlet.base.errors import MartletError
from martlet.cluster.store import (
    Change,
    Event,
    RevisionCompacted,
    StoreClosed,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnknownOutcome,
)
from martlet.stores.etcd_gateway import PUT, RANGE, WATCH, EtcdGateway, EtcdStream
from martlet.stores.etcd_http import AnswerLost
from martlet.stores.etcd_json import TICK_KEY, BadAnswer, KeySpace, WatchAnswer, as_number, as_object

logger = logging.getLogger(__name__)

_HISTORY_SECONDS: Final = 0.25
"""etcd checks every 100 ms for watches that are to get history."""

_SHORT_LIFE_SECONDS: Final = 1.0
_SHORT_LIVES_MAX: Final = 2
"""How many streams in a row may end at once before the caller gets the error, and waits a while."""


class EtcdWatch:
    """One caller's watch; its life is one run of `changes`."""

    def __init__(self, gateway: EtcdGateway, keys: KeySpace, prefix: str, after_revision: int) -> None:
        self._gateway = gateway
        self._keys = keys
        self._prefix = prefix
        self._position = after_revision
        """Everything up to here was delivered, and handed to the caller or about to be."""
        self._promised = 0
        self._promise_made = asyncio.Event()
        self._moved = asyncio.Event()
        self._is_waiting = False
        self._stream: EtcdStream | None = None
        self._stream_began = 0.0
        self._failure: MartletError | None = None

    def promise(self, revision: int) -> None:
        """The store has returned this revision, so the watch must reach it soon (STO-5)."""
        if revision > self._promised:
            self._promised = revision
            self._promise_made.set()

    def stop(self) -> None:
        """Wake a reader that waits; a closed store's watch then ends."""
        if self._stream is not None:
            self._stream.abort()

    async def changes(self) -> AsyncGenerator[Change, None]:
        guard = asyncio.create_task(self._guard(), name="etcd-watch-guard")
        failures = 0
        try:
            while True:
                began = asyncio.get_running_loop().time()
                refused: _Refused | None = None
                try:
                    async with aclosing(self._follow_stream()) as changes:
                        async for change in changes:
                            yield change
                except _Refused as error:
                    refused = error
                lived = asyncio.get_running_loop().time() - began
                failures = 0 if lived > _SHORT_LIFE_SECONDS else failures + 1
                await self._check_failures(failures, refused)
        except StoreClosed:
            return
        finally:
            guard.cancel()
            await asyncio.wait([guard])
            await self._end_stream()

    # --- one stream

    async def _follow_stream(self) -> AsyncGenerator[Change, None]:
        """The changes that one stream brings; ends when it breaks."""
        try:
            self._stream = await self._gateway.stream(WATCH, self._keys.watch(max(1, self._position)))
            self._stream_began = asyncio.get_running_loop().time()
            if self._failure is not None:
                raise self._failure
            while (answer := await self._next_answer(self._stream)) is not None:
                for change in answer.changes:
                    if change.revision > self._position:
                        self._position = change.revision
                        yield Change(change.revision, self._matching(change))
        except AnswerLost as error:
            if self._failure is not None:
                raise self._failure from error
            if not self._gateway.is_closed:
                logger.info("metadata: the watch at revision %d broke (%s); resuming", self._position, error)
        finally:
            await self._end_stream()

    def _matching(self, change: Change) -> tuple[Event, ...]:
        return tuple(event for event in change.events if event.key.startswith(self._prefix))

    async def _next_answer(self, stream: EtcdStream) -> WatchAnswer | None:
        self._moved.set()
        self._is_waiting = True
        try:
            line = await anext(stream.lines, None)
        finally:
            self._is_waiting = False
        if line is None:
            return None
        try:
            answer = self._keys.watch_answer(line)
            if answer.header:
                self._gateway.check_cluster(answer.header, stream.member.endpoint)
        except BadAnswer as error:
            raise AnswerLost(str(error)) from error
        if answer.compact_revision:
            raise RevisionCompacted(answer.compact_revision + 1)
        if answer.canceled:
            raise _Refused(stream.member.endpoint, answer.reason)
        return answer

    async def _check_failures(self, failures: int, refused: "_Refused | None") -> None:
        """Come back when another stream may be opened at once."""
        if refused is not None:
            # A read renews a token that is too old, and says clearly what is wrong if anything is.
            await self._gateway.read(RANGE, self._keys.read_key(TICK_KEY))
        if failures > _SHORT_LIVES_MAX:
            raise StoreRefused(str(refused)) if refused else StoreUnavailable("etcd ends every watch at once")

    async def _end_stream(self) -> None:
        stream, self._stream = self._stream, None
        if stream is not None:
            self._gateway.leave(stream)
            await stream.close()

    # --- the guard

    async def _guard(self) -> None:
        while True:
            try:
                await self._guard_once()
                continue
            except UnknownOutcome as error:
                logger.info("metadata: the watch at revision %d could not be checked: %s", self._position, error)
            except StoreUnavailable as error:
                # No call comes through, so nothing will come down the stream either: let it be reopened.
                logger.info("metadata: the watch at revision %d is given up: %s", self._position, error)
                self.stop()
            except StoreError as error:
                self._failure = error
                self.stop()
                return
            await asyncio.sleep(self._gateway.limits.probe_seconds)
            self._promise_made.set()

    async def _guard_once(self) -> None:
        limits = self._gateway.limits
        try:
            async with asyncio.timeout(limits.probe_seconds):
                await self._promise_made.wait()
        except TimeoutError:
            self.promise(_revision_of(await self._gateway.read(RANGE, self._keys.read_key(TICK_KEY))))
        self._promise_made.clear()
        if await self._reaches(self._promised, limits.progress_seconds):
            return
        # A busy caller, or a stream that is only beginning, proves nothing: they are checked again.
        self._promise_made.set()
        age = asyncio.get_running_loop().time() - self._stream_began
        if self._is_waiting and self._stream is not None and age > _HISTORY_SECONDS:
            await self._tick(self._stream)

    async def _tick(self, stream: EtcdStream) -> None:
        revision = _revision_of(await self._gateway.write(PUT, self._keys.tick()))
        if await self._reaches(revision, self._gateway.limits.probe_seconds):
            return
        if self._is_waiting and stream is self._stream:
            logger.warning("metadata: the watch at revision %d has died; resuming", self._position)
            self.stop()

    async def _reaches(self, revision: int, seconds: float) -> bool:
        """Whether the watch gets there in time."""
        try:
            async with asyncio.timeout(seconds):
                while self._position < revision:
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            return False
        return True


class _Refused(MartletError):
    """etcd took the watch back."""

    def __init__(self, endpoint: object, reason: str) -> None:
        super().__init__(
            f"etcd at {endpoint} refuses the watch ({reason or 'no reason given'}); the user needs a role with the "
            "right to read all keys of the prefix"
        )


def _revision_of(answer: dict[str, object]) -> int:
    return as_number(as_object(answer.get("header"), "header").get("revision"), "revision")

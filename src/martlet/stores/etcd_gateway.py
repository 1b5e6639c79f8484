"""Calls to an etcd cluster through its JSON gateway: fail-over, authentication, and the checks on every answer.

Rules: knows the gateway's ways and no key. A read is tried on every member, a write is sent at most once (STO-7): when
its answer is lost, the outcome is unknown and stays so for the caller to find out.

How it works: the members form a ring. Calls go to the current one; one that fails to answer makes the next one
current. With a user, a token is fetched before the first call and whenever etcd no longer knows it; a call refused
for its token was not carried out, so it is made again.

Invariants:
STO-7 a write is sent again only after an answer that says it was not carried out;
STO-8 every answer is from the cluster found at the start, and one to a call made after revision r was known is of
   revision r or later; an answer that breaks this ends all use of the store.

Proved by: tests/unit/stores/test_etcd_gateway.py, tests/stores/
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from http import HTTPStatus
from typing import Final, NamedTuple

from martlet.base.errors import MartletError
from martlet.cluster.store import StoreClosed, StoreError, StoreRefused, StoreReplaced, StoreUnavailable, UnknownOutcome
from martlet.stores.etcd_faults import NOT_ENABLED_TEXT, EtcdFault, Meaning, fault_of
from martlet.stores.etcd_http import AnswerLate, AnswerLost, CannotConnect, HttpAnswer, HttpConnection
from martlet.stores.etcd_json import BadAnswer, JsonObject, as_number, as_object, pack, unpack
from martlet.stores.etcd_member import EtcdMember
from martlet.stores.etcd_options import EtcdEndpoint, EtcdOptions, tls_context

logger = logging.getLogger(__name__)

RANGE: Final = "/v3/kv/range"
PUT: Final = "/v3/kv/put"
TXN: Final = "/v3/kv/txn"
WATCH: Final = "/v3/watch"
LEASE_GRANT: Final = "/v3/lease/grant"
LEASE_KEEP_ALIVE: Final = "/v3/lease/keepalive"
LEASE_REVOKE: Final = "/v3/lease/revoke"
_AUTHENTICATE: Final = "/v3/auth/authenticate"

_LINEAR: Final = frozenset({RANGE, PUT, TXN})
"""Calls whose answers carry a revision no older than any that was known before."""

_FINAL: Final = frozenset({Meaning.LEASE_LOST, Meaning.REFUSED, Meaning.TOKEN})
"""What every member would answer alike. A refused token is one that a new token did not cure."""

_CONCURRENT_CALLS_MAX: Final = 64
_ADVICE: Final = "check that etcd runs and that these are its client addresses (--listen-client-urls)"


class CallFailed(StoreError):
    """etcd answered with an error whose meaning is the caller's business."""

    def __init__(self, fault: EtcdFault, endpoint: object) -> None:
        super().__init__(f"etcd at {endpoint}: {fault.text}")
        self.fault = fault
        self.endpoint = endpoint


class _Fault(NamedTuple):
    """Why one member did not do it."""

    endpoint: EtcdEndpoint
    cause: MartletError


class _Call(NamedTuple):
    """What is asked, how long for an answer, and whether it may be asked twice."""

    path: str
    body: bytes
    seconds: float
    is_repeatable: bool


class EtcdGateway:
    """The way to one cluster; made by its constructor, proved by `open`, ended by `close`."""

    def __init__(self, options: EtcdOptions) -> None:
        self.limits = options.limits
        self.known_revision = 0
        """The latest revision that any answer has shown."""
        tls = tls_context(options.tls)
        self._members = [
            EtcdMember(endpoint, tls, options.limits.connect_seconds) for endpoint in options.address.endpoints
        ]
        self._current = 0
        self._user = options.user
        self._password = options.password
        self._token: str | None = None
        self._is_token_wanted = options.user is not None
        self._token_lock = asyncio.Lock()
        self._cluster_id: int | None = None
        self._failure: StoreReplaced | None = None
        self._closed = False
        self._calls = asyncio.Semaphore(_CONCURRENT_CALLS_MAX)

    async def open(self, probe: bytes) -> None:
        """Read a key on every member; one that answers wrongly is an error, one that does not answer is not."""
        answers = await asyncio.gather(*(self._try(member, probe) for member in self._members), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        faults = [fault for fault in answers if isinstance(fault, str)]
        if len(faults) == len(self._members):
            raise StoreUnavailable(f"etcd cannot be reached: {'; '.join(faults)}; {_ADVICE}")
        for fault in faults:
            logger.warning("metadata: a member of etcd cannot be reached: %s", fault)

    async def _try(self, member: EtcdMember, probe: bytes) -> str | None:
        try:
            await self._ask(member, _Call(RANGE, probe, self.limits.request_seconds, True))
        except CallFailed as failed:
            if failed.fault.meaning in _FINAL:
                raise failed.fault.error(member.endpoint) from failed
            return f"{member.endpoint}: {failed.fault.text}"
        except (CannotConnect, AnswerLost) as fault:
            return f"{member.endpoint}: {fault}"
        return None

    async def close(self) -> None:
        self._closed = True
        for member in self._members:
            await member.close()

    @property
    def is_closed(self) -> bool:
        return self._closed

    # --- calls

    async def read(self, path: str, body: bytes, *, urgent: bool = False) -> JsonObject:
        """A call without effect, or one that may be made twice; tried on every member.

        An urgent one waits for no other call, and not long for a member that does not answer.
        """
        call = _Call(path, body, self.limits.lease_seconds if urgent else self.limits.request_seconds, True)
        faults: list[_Fault] = []
        async with self._turn(urgent):
            for member in self._ring():
                try:
                    return await self._ask(member, call)
                except (CannotConnect, AnswerLost, CallFailed, StoreRefused) as fault:
                    self._give_up_or_note(member, fault, faults)
        raise _none_answers(faults)

    async def write(self, path: str, body: bytes) -> JsonObject:
        """A call with an effect, sent to one member once (STO-7)."""
        call = _Call(path, body, self.limits.request_seconds, False)
        faults: list[_Fault] = []
        async with self._turn(False):
            for member in self._ring():
                try:
                    return await self._ask(member, call)
                except AnswerLost as fault:
                    self._move_on_from(member)
                    raise UnknownOutcome(f"etcd at {member.endpoint}: {fault}") from fault
                except CallFailed as failed:
                    if failed.fault.meaning in (Meaning.UNKNOWN, Meaning.NO_SPACE):
                        self._move_on_from(member)
                        raise UnknownOutcome(str(failed)) from failed
                    self._give_up_or_note(member, failed, faults)
                except (CannotConnect, StoreRefused) as fault:
                    self._give_up_or_note(member, fault, faults)
        raise _none_answers(faults)

    async def stream(self, path: str, body: bytes) -> "EtcdStream":
        """Begin a call whose answer goes on until it is closed; tried on every member."""
        faults: list[_Fault] = []
        for member in self._ring():
            try:
                return await self._begin(member, path, body)
            except (CannotConnect, AnswerLost, CallFailed, StoreRefused) as fault:
                self._give_up_or_note(member, fault, faults)
        raise _none_answers(faults)

    def leave(self, stream: "EtcdStream") -> None:
        """Let the next call go to another member than the one whose stream was no good."""
        self._move_on_from(stream.member)

    def check_cluster(self, header: JsonObject, endpoint: object) -> None:
        """STO-8, the first half."""
        found = as_number(header.get("cluster_id"), "cluster_id")
        if self._cluster_id is None:
            self._cluster_id = found
        elif found != self._cluster_id:
            self._failure = StoreReplaced(
                f"etcd at {endpoint} belongs to cluster {found:x}, not to {self._cluster_id:x} as the others or as "
                "before: the address is wrong, or its data was recreated"
            )
            raise self._failure

    # --- one exchange

    async def _ask(self, member: EtcdMember, call: _Call) -> JsonObject:
        known = self.known_revision
        message, revision = await self._ask_once(member, call)
        if call.path == RANGE and revision < known:
            # A member that was paused may answer one read from the past (etcd before 3.4.42, 3.5.28 and 3.6.9).
            message, revision = await self._ask_once(member, call)
        if call.path in _LINEAR:
            self._check_revision(revision, known, member.endpoint)
        return message

    async def _ask_once(self, member: EtcdMember, call: _Call) -> tuple[JsonObject, int]:
        """The answer and the revision it is of."""
        try:
            answer = await self._exchange(member, call)
        except AnswerLate:
            raise
        except AnswerLost:
            # Perhaps an idle connection whose end we had not noticed yet; now only a new one is left.
            if not call.is_repeatable:
                raise
            answer = await self._exchange(member, call)
        try:
            message = unpack(answer.body)
            if call.path == LEASE_KEEP_ALIVE:  # the one stream that is of one message
                message = as_object(message.get("result"), "result")
            header = as_object(message.get("header"), "header")
            self.check_cluster(header, member.endpoint)
            return message, as_number(header.get("revision"), "revision")
        except BadAnswer as error:
            raise AnswerLost(str(error)) from error

    async def _exchange(self, member: EtcdMember, call: _Call) -> HttpAnswer:
        """Ask with a token if one is wanted, and once more with a new one if etcd no longer takes it."""
        for attempt in range(2):
            self._check_usable()
            connection = await member.take()
            try:
                token = await self._token_for(connection)
                answer = await connection.exchange("POST", call.path, call.body, _headers(token), call.seconds)
            finally:
                await member.give_back(connection)
            if answer.status == HTTPStatus.OK:
                return answer
            fault = fault_of(answer)
            if fault.meaning is Meaning.NO_GATEWAY:
                raise fault.error(member.endpoint)
            if fault.meaning is not Meaning.TOKEN or not self._forget_token(token, is_last=attempt > 0):
                break
        raise CallFailed(fault, member.endpoint)

    async def _begin(self, member: EtcdMember, path: str, body: bytes) -> "EtcdStream":
        for attempt in range(2):
            self._check_usable()
            connection = await member.take()
            try:
                token = await self._token_for(connection)
                status = await connection.begin("POST", path, body, _headers(token), self.limits.request_seconds)
                if status == HTTPStatus.OK:
                    return EtcdStream(member, connection)
                fault = fault_of(HttpAnswer(status, await connection.rest(self.limits.request_seconds)))
            except BaseException:
                await member.drop(connection)
                raise
            await connection.close()
            if fault.meaning is Meaning.NO_GATEWAY:
                raise fault.error(member.endpoint)
            if fault.meaning is not Meaning.TOKEN or not self._forget_token(token, is_last=attempt > 0):
                break
        raise CallFailed(fault, member.endpoint)

    def _check_revision(self, found: int, known: int, endpoint: object) -> None:
        """STO-8, the second half."""
        if found < known:
            self._failure = StoreReplaced(
                f"etcd at {endpoint} is at revision {found} but was at {known}: it was restored from a backup or "
                "lost its data; stop all brokers before going on with it"
            )
            raise self._failure
        self.known_revision = max(self.known_revision, found)

    def _check_usable(self) -> None:
        if self._closed:
            raise StoreClosed("the metadata store has been closed")
        if self._failure is not None:
            raise self._failure

    # --- the token

    async def _token_for(self, connection: HttpConnection) -> str | None:
        """The token, fetched over this connection if there is none; nothing was sent of the call itself yet."""
        if not self._is_token_wanted:
            return None
        async with self._token_lock:
            if self._token is None:
                try:
                    self._token = await self._fetch_token(connection)
                except AnswerLost as error:
                    raise CannotConnect(str(error)) from error
            return self._token

    async def _fetch_token(self, connection: HttpConnection) -> str | None:
        body = pack({"name": self._user, "password": self._password})
        answer = await connection.exchange("POST", _AUTHENTICATE, body, [], self.limits.request_seconds)
        if answer.status == HTTPStatus.OK:
            try:
                token = str(unpack(answer.body).get("token", ""))
            except BadAnswer as error:
                raise AnswerLost(str(error)) from error
            if not (token and token.isascii() and token.isprintable()):
                raise AnswerLost("no token was in the answer")
            return token
        fault = fault_of(answer)
        if NOT_ENABLED_TEXT in fault.text:
            logger.warning("metadata: a user was given, but etcd at %s asks for none", connection.endpoint)
            self._is_token_wanted = False
            return None
        if fault.meaning is Meaning.REFUSED:
            raise StoreRefused(f"etcd at {connection.endpoint}, user {self._user}: {fault.text}")
        raise CannotConnect(f"no token for user {self._user}: {fault.text}")

    def _forget_token(self, refused: str | None, *, is_last: bool) -> bool:
        """Whether it makes sense to ask once more with a new token."""
        if self._user is None or is_last:
            return False
        self._is_token_wanted = True
        if self._token == refused:
            self._token = None
        return True

    # --- the ring

    def _turn(self, urgent: bool) -> AbstractAsyncContextManager[object]:
        # A lease must not run out behind a queue of commits that wait for a slow etcd.
        return nullcontext() if urgent else self._calls

    def _ring(self) -> Iterator[EtcdMember]:
        count = len(self._members)
        start = self._current
        return (self._members[(start + step) % count] for step in range(count))

    def _move_on_from(self, member: EtcdMember) -> None:
        if self._members[self._current] is member:
            self._current = (self._current + 1) % len(self._members)

    def _give_up_or_note(self, member: EtcdMember, fault: MartletError, faults: list[_Fault]) -> None:
        """Raise what no other member would answer otherwise; note the rest and try the next member."""
        if isinstance(fault, CallFailed):
            if fault.fault.meaning in _FINAL:
                raise fault.fault.error(member.endpoint) from fault
            if fault.fault.meaning is Meaning.COMPACTED:
                raise fault
        self._move_on_from(member)
        faults.append(_Fault(member.endpoint, fault))


def _none_answers(faults: list[_Fault]) -> StoreError:
    reasons = "; ".join(
        str(cause) if isinstance(cause, StoreError) else f"etcd at {endpoint}: {cause}" for endpoint, cause in faults
    )
    if all(isinstance(cause, StoreRefused) for _, cause in faults):
        return StoreRefused(reasons)
    return StoreUnavailable(f"{reasons}; {_ADVICE}")


class EtcdStream:
    """An answer that goes on; its owner closes it."""

    def __init__(self, member: EtcdMember, connection: HttpConnection) -> None:
        self.member = member
        self._connection = connection
        self.lines = connection.lines()

    def abort(self) -> None:
        """End it from outside: the reader gets `AnswerLost`."""
        self._connection.abort()

    async def close(self) -> None:
        await self.lines.aclose()
        await self.member.drop(self._connection)


def _headers(token: str | None) -> list[tuple[str, str]]:
    head = [("Content-Type", "application/json")]
    if token is not None:
        head.append(("Authorization", token))
    return head

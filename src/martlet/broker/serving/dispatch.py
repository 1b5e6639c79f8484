"""From a frame to its handler and from the handler's answer to the reply: the one edge where errors turn into fates.

A `ProtocolViolation` closes that connection. Anything a handler did not expect is logged once with its context and
closes the connection too, so that the client retries; it never reaches other clients. This is one of the
named supervisors that may catch everything.

Errors in answers are counted, and `throttle_time_ms` is filled, where the answer leaves: here for all APIs that go
through the message codec; handlers with codecs of their own count when they know of an error, and call
`Reply.throttle`. How long a client waits is decided by one hook, `Dispatcher.throttle`, for all APIs.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from typing import Any, TypeAlias, cast

from martlet.base.errors import ErrorCode, InvariantViolation, ProtocolViolation
from martlet.broker.ground.request import Link, Reply, RequestContext
from martlet.broker.services import BrokerServices
from martlet.broker.serving.registry import Api, MessageApi, RawApi
from martlet.broker.serving.timed_work import TimedAnswer, TimedWork
from martlet.observe.logs import LogThrottle
from martlet.observe.metrics import NO_API, DropReason
from martlet.security.gates.gate import Finish
from martlet.wire.api_keys import ApiKey
from martlet.wire.headers import RequestHeader
from martlet.wire.message_codec import decode, encode, errors_in

logger = logging.getLogger(__name__)

Throttle: TypeAlias = Callable[[Link, RequestHeader], int]
"""Charges a client for a request; returns for how many milliseconds it is to wait after the answer."""


def no_throttle(link: Link, header: RequestHeader) -> int:
    """A client without a quota never waits."""
    return 0


class Dispatcher:
    """Starts requests; owns the tasks of those handlers that suspend."""

    def __init__(self, broker: BrokerServices, registry: Mapping[int, Api], throttle: Throttle = no_throttle) -> None:
        self._broker = broker
        self._registry = registry
        self._refusals = LogThrottle(logger, broker.clock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._timed = TimedWork(lambda error: self._report(NO_API, "administrative work that was late", error))
        self.metrics = broker.metrics
        self.throttle = throttle

    def start(self, link: Link, frame: memoryview, reply: Reply) -> None:
        """Begin one request; its reply is completed now or later."""
        header = reply.header
        api = self._registry.get(header.api_key)
        if api is None or header.api_version not in api.versions:
            self._refuse_version(link, reply)
            return
        self.metrics.requests_total[header.api_key] += 1
        try:
            if isinstance(api, RawApi):
                work = api.start(self._broker, link, frame, reply)
                if work is not None:
                    self._follow(self._complete(link, work, reply))
            else:
                self._start_message(api, link, frame, reply)
        except ProtocolViolation as violation:
            reply.refuse(f"bad {describe(header)}: {violation}", DropReason.PROTOCOL_VIOLATION)
        except Exception as error:  # noqa: BLE001 - supervisor: one request's failure must not end the broker
            self._unexpected(link, reply, error)

    def report_refusal(self, link: Link, reason: str) -> None:
        """One clear line for a connection that is being closed; repeats from one host are counted, not printed."""
        self._refusals.warning(link.peer.host, f"closed connection from {link.peer}: {reason}")

    def flush_reports(self) -> None:
        """Say how many refusals were counted instead of printed, if it is time to."""
        self._refusals.flush()

    async def aclose(self) -> None:
        """Cancel what is still running."""
        self._refusals.flush()
        await self._timed.aclose()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _start_message(self, api: MessageApi, link: Link, frame: memoryview, reply: Reply) -> None:
        header = reply.header
        request = decode(api.request, header.api_version, frame, position=header.body_position)
        context = RequestContext(link, header.api_version, header.client_id)
        finish: Finish = _as_it_is
        if (rules := self._broker.access.rules) is not None:
            admission = rules.admit(header.api_key, request, link, header.api_version)
            if admission.answer is not None:
                self._answer(reply, admission.answer, header.api_version)
                return
            request, finish = admission.request, admission.finish or _as_it_is
        answer = api.handle(self._broker, request, context)
        if isinstance(answer, TimedAnswer):
            answer = self._timed.answer(answer)
        if isinstance(answer, Awaitable):
            task = self._follow(self._finish(link, answer, reply, finish))
            if api.ends_with_connection:
                reply.on_abandoned = _canceller(task)
        else:
            self._answer(reply, finish(answer), header.api_version)

    def _follow(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _complete(self, link: Link, work: Awaitable[None], reply: Reply) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - supervisor: one request's failure must not end the broker
            self._unexpected(link, reply, error)

    async def _finish(self, link: Link, answer: Awaitable[Any], reply: Reply, finish: Finish) -> None:
        try:
            self._answer(reply, finish(await answer), reply.header.api_version)
        except Exception as error:  # noqa: BLE001 - supervisor: one request's failure must not end the broker
            self._unexpected(link, reply, error)

    def _answer(self, reply: Reply, message: object, version: int) -> None:
        """Send the message; the errors in it are counted and its client is throttled here."""
        self.metrics.count_errors(reply.header.api_key, errors_in(message, version))
        throttle_ms = reply.throttle()
        if throttle_ms and hasattr(message, "throttle_time_ms"):
            # A handler may answer many requests with one message.
            message = replace(cast(Any, message), throttle_time_ms=throttle_ms)
        reply.send((encode(message, version),))

    def _refuse_version(self, link: Link, reply: Reply) -> None:
        header = reply.header
        api = self._registry.get(header.api_key)
        if isinstance(api, MessageApi) and header.api_key == ApiKey.API_VERSIONS:
            # The one API that answers a version it does not know: in the layout of v0, without reading the body.
            context = RequestContext(link, header.api_version, header.client_id)
            answer = api.handle(self._broker, None, context)
            self._answer(reply, answer, 0)
            return
        reply.refuse(f"{describe(header)} is not served", DropReason.UNSUPPORTED_REQUEST)

    def _unexpected(self, link: Link, reply: Reply, error: Exception) -> None:
        header = reply.header
        self._report(header.api_key, f"{describe(header)} from {link.peer}", error)
        reply.refuse("the request failed inside the broker", DropReason.INTERNAL_ERROR)

    def _report(self, api_key: int, what: str, error: Exception) -> None:
        self.metrics.count_errors(api_key, (ErrorCode.UNKNOWN_SERVER_ERROR,))
        logger.error("%s failed", what, exc_info=error)
        if isinstance(error, InvariantViolation):
            self._broker.fail(error)


def _canceller(task: asyncio.Future[None]) -> Callable[[], None]:
    def cancel() -> None:
        task.cancel()

    return cancel


def _as_it_is(answer: Any) -> Any:
    return answer


def describe(header: RequestHeader) -> str:
    """A request as people name it."""
    try:
        name = ApiKey(header.api_key).name
    except ValueError:
        name = f"API {header.api_key}"
    client = f" of client {header.client_id!r}" if header.client_id else ""
    return f"{name} v{header.api_version} request{client}"

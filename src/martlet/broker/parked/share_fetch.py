"""A share fetch from arrival to answer: take over what its member says, lease it messages, wait while there are none.

Rules: acknowledgements are applied before anything else and answered when they are committed. An answer leaves as soon
as something could be leased, whatever `min_bytes` asks for beyond one: leases would run out while an answer is being
filled. It names every partition that is new in the session, has an error, was given something or carried
acknowledgements. What is there is shared out among the members that wait for it. What was leased and cannot be sent any
more is given back and counts for nothing.

Proved by: tests/broker/test_share_apis.py, tests/clients/test_share_confluent.py
"""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.broker.ground.request import Link, Reply
from martlet.broker.parked.share_caller import NOT_YET, ShareCaller
from martlet.broker.queueing.doors import Handout, PartitionQueue, Wish
from martlet.broker.queueing.share_acknowledgements import Acknowledgements
from martlet.broker.routing.leader_hint import leaders_of
from martlet.broker.services import BrokerServices
from martlet.queues.share.sessions import CLOSING, SharePartition, ShareSession
from martlet.wire.api_keys import ApiKey
from martlet.wire.leader_hints import CurrentLeader
from martlet.wire.share_fetch import ShareFetchRequest, SharePartitionResult, encode_share_fetch_response

_WAIT_MS_MAX: Final = 300_000
"""A fetch waits no longer than this whatever it asks for, so that an abandoned one cannot stay for ever."""
_LOOK_AGAIN_SECONDS: Final = 0.1
"""While a queue is not served yet, which calls nobody back."""
_WHOLE_BATCHES: Final = 0


class WaitingShareFetch:
    """A share fetch that is being served; answered exactly once."""

    def __init__(
        self, broker: BrokerServices, request: ShareFetchRequest, caller: ShareCaller, link: Link, reply: Reply
    ) -> None:
        self._broker = broker
        self._request = request
        self._caller = caller
        self._link = link
        self._reply = reply
        self._given: dict[SharePartition, Handout] = {}
        self._errors: dict[SharePartition, ApiError] = {}
        self._records_left = request.max_records
        self._bytes_left = min(request.max_bytes, broker.settings.fetch_bytes_max)
        self._is_incomplete = False
        """Whether some queue is not served yet."""
        self._changed = asyncio.Event()

    async def serve(self) -> None:
        """From the session to the answer."""
        request, caller = self._request, self._caller
        try:
            caller.check()
            self._check_renewal()
            sessions = self._broker.share.sessions
            has_acknowledgements = any(one.acknowledgements for one in request.partitions)
            session = sessions.fetch(
                caller.key, request.session_epoch, caller.connection, has_acknowledgements=has_acknowledgements
            )
        except ApiError as error:
            self._send_error(error)
            return
        said = Acknowledgements(caller.member_id, caller.queue, may_renew=request.is_renewing and caller.may_renew)
        said.apply(request.partitions)
        named: list[SharePartition] = []
        if request.session_epoch == CLOSING:
            await said.committed()
            self._broker.share.close(session)
        else:
            try:
                named = session.add(SharePartition(TopicId(one.topic_id), one.partition) for one in request.partitions)
            except ApiError as error:
                self._send_error(error)
                return
            session.forget(SharePartition(TopicId(topic_id), index) for topic_id, index in request.forgotten)
            if not request.is_renewing:
                await self._fill(session)
            await said.committed()
        if self._reply.abandoned or (self._given and not self._broker.share.sessions.is_open(session)):
            for partition in self._given:
                self._broker.share.give_back(session, partition)
            return
        self._send([one for one in named if one in session.partitions], said)

    def _check_renewal(self) -> None:
        request = self._request
        limits = (request.max_wait_ms, request.min_bytes, request.max_bytes, request.max_records)
        if request.is_renewing and any(limits):
            raise ApiError(ErrorCode.INVALID_REQUEST, "a request that renews leases fetches nothing: its limits are 0")

    # --- leasing and waiting

    async def _fill(self, session: ShareSession) -> None:
        """Lease what there is, or wait until there is something, or until the client has waited long enough."""
        wait_ms = min(self._request.max_wait_ms, _WAIT_MS_MAX)
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        self._reply.on_abandoned = self._changed.set
        while True:
            self._changed.clear()
            watched = self._watch(session.partitions)
            try:
                await self._lease(session)
                left = until - loop.time()
                if self._given or self._errors or left <= 0 or self._reply.abandoned:
                    return
                with self._broker.share.counted(self._caller.group_id, session.partitions):
                    await self._wait(min(left, _LOOK_AGAIN_SECONDS) if self._is_incomplete else left)
            finally:
                for queue in watched:
                    queue.remove_waiter(self._changed.set)

    def _watch(self, partitions: Iterable[SharePartition]) -> list[PartitionQueue]:
        """Have the event set when any of the queues may have something, or is served no more."""
        watched = []
        for partition in partitions:
            try:
                queue = self._caller.queue(partition)
            except ApiError:
                continue  # which the attempt finds out as well
            queue.add_waiter(self._changed.set)
            watched.append(queue)
        return watched

    async def _wait(self, seconds: float) -> None:
        metrics = self._broker.metrics
        metrics.parked_fetches += 1
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return
        finally:
            metrics.parked_fetches -= 1

    async def _lease(self, session: ShareSession) -> None:
        """One pass over the partitions of the session, those first that gave nothing last time."""
        self._is_incomplete = False
        is_whole_batches = self._request.acquire_mode == _WHOLE_BATCHES
        for partition in tuple(session.partitions):
            if self._records_left <= 0 or self._bytes_left <= 0 or self._reply.abandoned:
                break
            try:
                queue = self._caller.queue(partition)
                if not queue.has_deliverable:
                    continue
                wish = Wish(self._part_of(partition, queue), self._bytes_left, is_whole_batches=is_whole_batches)
                handout = await queue.hand_out(self._caller.member_id, wish)
            except ApiError as error:
                if error.code in NOT_YET:
                    self._is_incomplete = True
                else:
                    self._errors[partition] = error
                continue
            if handout.deliveries:
                self._given[partition] = handout
                self._records_left -= handout.message_count
                self._bytes_left -= sum(map(len, handout.batches))
        session.served(self._given)

    def _part_of(self, partition: SharePartition, queue: PartitionQueue) -> int:
        """How many messages to lease: what is there is shared out among the fetches that wait for it."""
        others = self._broker.share.waiting(self._caller.group_id, partition)
        if not others:
            return self._records_left
        return min(self._records_left, max(1, -(-queue.depth().waiting // (others + 1))))

    # --- answering

    def _send(self, named: Sequence[SharePartition], said: Acknowledgements) -> None:
        misled = [
            partition
            for partition, error in (*self._errors.items(), *said.outcome.items())
            if error is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        ]
        leaders, endpoints = leaders_of(self._broker.cluster, self._link, misled) if misled else ({}, [])
        by_topic: dict[TopicId, list[SharePartitionResult]] = {}
        for partition in dict.fromkeys((*named, *self._errors, *self._given, *said.outcome)):
            result = self._result(partition, said.outcome.get(partition), leaders.get(partition, CurrentLeader()))
            by_topic.setdefault(partition.topic_id, []).append(result)
        answer = list(by_topic.items())
        codes = [
            code for _, results in answer for one in results for code in (one.error_code, one.acknowledge_error_code)
        ]
        self._broker.metrics.count_errors(ApiKey.SHARE_FETCH, codes)
        self._reply.send(
            encode_share_fetch_response(
                self._reply.header.api_version,
                answer,
                lease_ms=self._caller.lease_ms,
                throttle_time_ms=self._reply.throttle(),
                node_endpoints=endpoints,
            )
        )

    def _result(self, partition: SharePartition, said: ApiError | None, leader: CurrentLeader) -> SharePartitionResult:
        error, handout = self._errors.get(partition), self._given.get(partition)
        return SharePartitionResult(
            partition.partition,
            ErrorCode.NONE if error is None else error.code,
            None if error is None else error.detail,
            ErrorCode.NONE if said is None else said.code,
            None if said is None else said.detail,
            leader,
            () if handout is None else handout.batches,
            () if handout is None else handout.deliveries,
        )

    def _send_error(self, error: ApiError) -> None:
        self._broker.metrics.count_errors(ApiKey.SHARE_FETCH, (error.code,))
        version, throttle_ms = self._reply.header.api_version, self._reply.throttle()
        self._reply.send(
            encode_share_fetch_response(
                version, (), error_code=error.code, error_message=error.detail, throttle_time_ms=throttle_ms
            )
        )

"""ShareAcknowledge 1-2: what a member of a share group says of the messages it has, without fetching more.

It takes part in the session of ShareFetch and its epochs; -1 closes the session, and what the member has comes back at
once, not counted as an attempt. Acknowledgements of a partition are applied or refused together and answered when they
are committed. v2 renews leases. A member that came to the wrong broker is given the right one, and its address.
"""

from collections.abc import Awaitable
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.broker.ground.request import Link, Reply
from martlet.broker.parked.share_caller import ShareCaller
from martlet.broker.queueing.share_acknowledgements import Acknowledgements
from martlet.broker.routing.leader_hint import leaders_of
from martlet.broker.services import BrokerServices
from martlet.queues.share.sessions import CLOSING
from martlet.wire.api_keys import ApiKey
from martlet.wire.leader_hints import CurrentLeader
from martlet.wire.message_codec import encode, errors_in
from martlet.wire.messages.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from martlet.wire.share_fetch import ShareAcknowledgeRequest, parse_share_acknowledge_request

KEY: Final = ApiKey.SHARE_ACKNOWLEDGE
VERSIONS: Final = (1, 2)


def start(broker: BrokerServices, link: Link, frame: memoryview, reply: Reply) -> Awaitable[None]:
    """Begin to serve the request; it answers itself."""
    request = parse_share_acknowledge_request(frame[reply.header.body_position :], reply.header.api_version)
    return _serve(broker, request, link, reply)


async def _serve(broker: BrokerServices, request: ShareAcknowledgeRequest, link: Link, reply: Reply) -> None:
    caller = ShareCaller(broker, link, KEY, request.group_id or "", request.member_id or "")
    try:
        caller.check()
        session = broker.share.sessions.acknowledge(caller.key, request.session_epoch, caller.connection)
    except ApiError as error:
        _send(broker, reply, ShareAcknowledgeResponse(error_code=error.code, error_message=error.detail))
        return
    said = Acknowledgements(caller.member_id, caller.queue, may_renew=request.is_renewing and caller.may_renew)
    said.apply(request.partitions)
    await said.committed()
    if request.session_epoch == CLOSING:
        broker.share.close(session)
    response = _response(broker, link, said)
    response.acquisition_lock_timeout_ms = caller.lease_ms
    _send(broker, reply, response)


def _response(broker: BrokerServices, link: Link, said: Acknowledgements) -> ShareAcknowledgeResponse:
    misled = [
        partition
        for partition, error in said.outcome.items()
        if error is not None and error.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    ]
    leaders, endpoints = leaders_of(broker.cluster, link, misled) if misled else ({}, [])
    by_topic: dict[TopicId, list[PartitionData]] = {}
    for partition, error in said.outcome.items():
        leader = LeaderIdAndEpoch(*leaders.get(partition, CurrentLeader()))
        code, detail = (ErrorCode.NONE, None) if error is None else (error.code, error.detail)
        by_topic.setdefault(partition.topic_id, []).append(PartitionData(partition.partition, code, detail, leader))
    return ShareAcknowledgeResponse(
        responses=[ShareAcknowledgeTopicResponse(topic_id, results) for topic_id, results in by_topic.items()],
        node_endpoints=[NodeEndpoint(*endpoint) for endpoint in endpoints],
    )


def _send(broker: BrokerServices, reply: Reply, response: ShareAcknowledgeResponse) -> None:
    version = reply.header.api_version
    broker.metrics.count_errors(KEY, errors_in(response, version))
    response.throttle_time_ms = reply.throttle()
    reply.send((encode(response, version),))

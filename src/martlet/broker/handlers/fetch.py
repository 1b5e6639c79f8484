"""Fetch 4–18: batches from an offset on, waiting for more when there are too few.

- Long poll: an answer waits for `min_bytes`, at most `max_wait_ms`; errors and closed logs answer at once.
- Byte limits in the order partitions were asked for; the first partition with data gives at least one whole batch.
- Whole batches only, as they were published; the first may begin before the offset asked for.
- A partition named several times is served once.
- Leader epochs are compared (v9); a reader whose history was truncated is answered with where it diverges (v12).
- v13 topic ids. Records are never null.
- Sessions are declined: every answer carries session id 0, so clients keep sending full requests; a request that names
  a session is answered that it does not exist. That is legal and costs only request bytes.
- v11 a reader may be sent to a follower in its own rack, and followers serve readers up to their high watermark.
- Readers of committed data (isolation level 1) get what is below the last stable offset, and which of it was aborted.
- v12 and v16: a reader that came to the wrong broker is given the right one, and its address.
- v15 fetches of followers: of this cluster's brokers only, and up to the end of the log.
"""

from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.broker.ground.request import Link, Reply
from martlet.broker.leading.follower_authority import check_replica
from martlet.broker.parked.consumer_fetch import ConsumerReads
from martlet.broker.parked.fetch import WaitingFetch
from martlet.broker.parked.replica_fetch import ReplicaReads
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import (
    FetchPartitionResult,
    FetchRequest,
    encode_fetch_response,
    parse_fetch_request,
)

KEY: Final = ApiKey.FETCH
VERSIONS: Final = (4, 18)

_NO_SESSION: Final = 0
_FULL_FETCH_EPOCHS: Final = (-1, 0)
_CONSUMER_REPLICA_IDS: Final = (-1, -2)
"""What ordinary and debugging consumers give as replica id; a broker gives its own."""


def start(broker: BrokerServices, link: Link, frame: memoryview, reply: Reply) -> None:
    """Answer now if there is enough to say, else park the request."""
    version = reply.header.api_version
    request = parse_fetch_request(frame[reply.header.body_position :], version)
    if names_a_session(request):
        error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        broker.metrics.count_errors(KEY, (error,))
        reply.send(encode_fetch_response(version, (), error_code=error, throttle_time_ms=reply.throttle()))
        return
    request = without_repeats(request)
    if request.replica.replica_id in _CONSUMER_REPLICA_IDS:
        WaitingFetch(broker, request, link, reply, ConsumerReads(broker, request, link, version)).start()
        return
    try:
        follower = check_replica(request, broker.image)
    except ApiError as error:
        answer = refused_everywhere(request, error.code)
        broker.metrics.count_errors(KEY, (result.error_code for *_, results in answer for result in results))
        reply.send(encode_fetch_response(version, answer, throttle_time_ms=reply.throttle()))
        return
    WaitingFetch(broker, request, link, reply, ReplicaReads(broker, follower)).start()


def refused_everywhere(
    request: FetchRequest, code: ErrorCode
) -> list[tuple[str | None, bytes | None, list[FetchPartitionResult]]]:
    """An answer that refuses every partition asked for."""
    return [
        (topic.topic, topic.topic_id, [FetchPartitionResult(asked.partition, code) for asked in topic.partitions])
        for topic in request.topics
    ]


def without_repeats(request: FetchRequest) -> FetchRequest:
    """The request with each partition named once, which is what every honest one is."""
    count = sum(len(topic.partitions) for topic in request.topics)
    if count < 2:
        return request
    seen: dict[tuple[object, int], None] = {}
    topics = []
    for topic in request.topics:
        name = topic.topic if topic.topic_id is None else topic.topic_id
        fresh = [asked for asked in topic.partitions if (name, asked.partition) not in seen]
        seen.update(((name, asked.partition), None) for asked in fresh)
        topics.append(topic._replace(partitions=list({asked.partition: asked for asked in fresh}.values())))
    return request if len(seen) == count else request._replace(topics=topics)


def names_a_session(request: FetchRequest) -> bool:
    """Whether the request relies on partitions remembered from earlier ones."""
    return request.session_id != _NO_SESSION and request.session_epoch not in _FULL_FETCH_EPOCHS

"""Fetch 4–18: batches from an offset on, waiting for more when there are too few.

- Long poll: an answer waits for `min_bytes`, at most `max_wait_ms`; errors and closed logs answer at once.
- Byte limits in the order partitions were asked for; the first partition with data gives at least one whole batch.
- Whole batches only, as they were published; the first may begin before the offset asked for.
- A partition named several times is served once.
- Leader epochs are compared (v9); a reader whose history was truncated is told where it diverges (v12).
- v13 topic ids. Records are never null.
- Sessions are declined: every answer carries session id 0, so clients keep sending full requests; a request that names
  a session is told it does not exist. That is legal and costs only request bytes.
Deviation: follower fetches (a replica id) are refused until there are followers to serve.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.fetch_wait import WaitingFetch
from martlet.broker.request import Link, Reply
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.fetch import FetchRequest, encode_fetch_response, parse_fetch_request

KEY: Final = ApiKey.FETCH
VERSIONS: Final = (4, 18)

_NO_SESSION: Final = 0
_FULL_FETCH_EPOCHS: Final = (-1, 0)


def start(broker: BrokerServices, link: Link, frame: memoryview, reply: Reply) -> None:
    """Answer now if there is enough to say, else park the request."""
    version = reply.header.api_version
    request = parse_fetch_request(frame[reply.header.body_position :], version)
    if names_a_session(request):
        error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        broker.metrics.errors_total[error] += 1
        reply.send(encode_fetch_response(version, (), error_code=error))
        return
    WaitingFetch(broker, without_repeats(request), reply).start()


def without_repeats(request: FetchRequest) -> FetchRequest:
    """The request with each partition named once, which is what every honest one is."""
    count = sum(len(topic.partitions) for topic in request.topics)
    if count < 2:
        return request
    seen: dict[tuple[object, int], None] = {}
    topics = []
    for topic in request.topics:
        name = topic.name if topic.topic_id is None else topic.topic_id
        fresh = [asked for asked in topic.partitions if (name, asked.partition) not in seen]
        seen.update(((name, asked.partition), None) for asked in fresh)
        topics.append(topic._replace(partitions=list({asked.partition: asked for asked in fresh}.values())))
    return request if len(seen) == count else request._replace(topics=topics)


def names_a_session(request: FetchRequest) -> bool:
    """Whether the request relies on partitions remembered from earlier ones."""
    return request.session_id != _NO_SESSION and request.session_epoch not in _FULL_FETCH_EPOCHS

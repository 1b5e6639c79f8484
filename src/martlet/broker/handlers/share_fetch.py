"""ShareFetch 1-2: messages leased to a member of a share group, and what it says of those it has.

- Sessions: epoch 0 opens one, each request carries the next epoch, -1 closes it; one per member, on its connection.
- Long poll: an answer waits until something can be leased, at most `max_wait_ms`; acknowledgements wait with it.
- Batches are cut to the records that are leased, unless whole ones are wanted and free (acquire mode 0).
- v2: at most `max_records` with acquire mode 1; a request that renews leases fetches nothing.
- A member that came to the wrong broker is given the right one, and its address.
Deviations: `min_bytes` beyond one does not hold an answer back, since leases would run out meanwhile. Leases of a
connection that is lost come back as failed attempts; in Kafka they do not count.
"""

from collections.abc import Awaitable
from typing import Final

from martlet.broker.ground.request import Link, Reply
from martlet.broker.parked.share_caller import ShareCaller
from martlet.broker.parked.share_fetch import WaitingShareFetch
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.share_fetch import parse_share_fetch_request

KEY: Final = ApiKey.SHARE_FETCH
VERSIONS: Final = (1, 2)


def start(broker: BrokerServices, link: Link, frame: memoryview, reply: Reply) -> Awaitable[None]:
    """Begin to serve the request; it answers itself."""
    request = parse_share_fetch_request(frame[reply.header.body_position :], reply.header.api_version)
    caller = ShareCaller(broker, link, KEY, request.group_id or "", request.member_id or "")
    return WaitingShareFetch(broker, request, caller, link, reply).serve()

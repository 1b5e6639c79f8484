"""Who may fetch as a replica: only processes of this cluster's brokers, which show a secret from the metadata store.

A client that fetches as a replica reads what is not committed and, worse, what it claims to hold counts for what is: an
ordinary client must not be able to do either. So the fetch carries the secret, which only those can know who can read
the metadata store, and the incarnation under which the broker is registered now.

Proved by: tests/unit/broker/parked/test_replica_fetch.py
"""

import hmac

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId, Incarnation, Member
from martlet.cluster.image import MetadataImage
from martlet.wire.fetch import FetchRequest


def check_replica(request: FetchRequest, image: MetadataImage) -> Member:
    """The process that fetches; raises CLUSTER_AUTHORIZATION_FAILED unless it is one of this cluster's.

    A process whose lease has just run out is still let in: it is the one that is registered, what it holds it holds,
    and the in-sync set is another matter.
    """
    member = Member(BrokerId(request.replica.replica_id), Incarnation(request.replica.replica_epoch))
    secret, shown = image.replica_secret, request.cluster_id or ""
    knows_secret = hmac.compare_digest(secret.encode(), shown.encode())
    broker = image.broker(member.broker)
    if not secret or not knows_secret or broker is None or broker.incarnation != member.incarnation:
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers of this cluster may fetch as replicas")
    return member

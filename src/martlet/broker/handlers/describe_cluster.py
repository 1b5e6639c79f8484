"""DescribeCluster 0–2: the cluster's id, brokers and controller.

v1 adds the endpoint type (only brokers are described here), v2 on request the fenced brokers: registered, not alive.
The operations that the client is allowed are named on request.
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.ground.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
from martlet.wire.messages.authorized_operations import CLUSTER_OPERATIONS, OPERATIONS_NOT_REQUESTED
from martlet.wire.messages.describe_cluster import (
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)

KEY: Final = ApiKey.DESCRIBE_CLUSTER
VERSIONS: Final = (0, 2)
REQUEST: Final = DescribeClusterRequest

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(broker: BrokerServices, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    """Describe the cluster, or refuse an endpoint type that is not served."""
    if request.endpoint_type != _BROKERS:
        known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this endpoint describes brokers (endpoint type 1)",
            endpoint_type=request.endpoint_type,
        )
    with_operations = request.include_cluster_authorized_operations
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.cluster.controller(context.link),
        brokers=[
            DescribeClusterBroker(
                broker_id=node.id,
                host=node.address.host,
                port=node.address.port,
                rack=node.rack,
                is_fenced=node.is_fenced,
            )
            for node in broker.cluster.nodes(context.link, with_fenced=request.include_fenced_brokers)
        ],
        cluster_authorized_operations=CLUSTER_OPERATIONS if with_operations else OPERATIONS_NOT_REQUESTED,
    )

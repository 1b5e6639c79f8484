"""DescribeCluster 0–2: the cluster's id and brokers.

v1 adds the endpoint type (only brokers are described here), v2 fenced brokers (there are none).
"""

from typing import Final

from martlet.base.errors import ErrorCode
from martlet.broker.handlers.metadata import describe_brokers
from martlet.broker.request import RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey
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
    return DescribeClusterResponse(
        cluster_id=broker.cluster_id,
        controller_id=broker.broker_id,
        brokers=[
            DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in describe_brokers(broker, context)
        ],
    )

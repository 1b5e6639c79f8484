"""The operations a client may carry out, as several responses carry them on request: a bit for each operation.

There is no authorization yet, so the answer is every operation that Kafka knows for the kind of resource.
"""

from typing import Final

OPERATIONS_NOT_REQUESTED: Final = -2147483648

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << code for code in range(3, 9))
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = (1 << code for code in range(9, 13))

_WITH_CONFIGS: Final = _DESCRIBE | _DESCRIBE_CONFIGS | _ALTER_CONFIGS
TOPIC_OPERATIONS: Final = _READ | _WRITE | _CREATE | _DELETE | _ALTER | _WITH_CONFIGS
GROUP_OPERATIONS: Final = _READ | _DELETE | _WITH_CONFIGS
CLUSTER_OPERATIONS: Final = _CREATE | _ALTER | _CLUSTER_ACTION | _IDEMPOTENT_WRITE | _WITH_CONFIGS

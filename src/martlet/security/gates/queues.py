"""Gates of the APIs of work queues, our own: subscriptions are guarded like groups of their name.

Rule: who receives must be let read the topics, too. A subscription's topics are not known here, so the handler asks for
each that it is about to read.

Proved by: tests/unit/security/test_gates.py
"""

from dataclasses import replace
from typing import Any, Final

from martlet.security.gates.gate import (
    GROUP,
    GROUP_REFUSED,
    TOPIC,
    Admission,
    Asker,
    error,
    on_cluster,
    one_by_one,
    whole,
)
from martlet.security.rules import Operation
from martlet.wire.messages.alter_subscriptions import (
    AlteredSubscription,
    AlteredSubscriptionResult,
    AlterSubscriptionsResponse,
)
from martlet.wire.messages.describe_queues import DescribeQueuesResponse
from martlet.wire.messages.describe_subscriptions import (
    DescribedSubscription,
    DescribeSubscriptionsRequest,
    DescribeSubscriptionsResponse,
)
from martlet.wire.messages.receive_messages import ReceiveMessagesResponse
from martlet.wire.messages.seek_queue import SeekQueueResponse
from martlet.wire.messages.settle_messages import SettleMessagesResponse
from martlet.wire.messages.write_dead_letters import WriteDeadLettersResponse

_DELETE: Final = 2
_DEAD_LETTER_TOPIC: Final = "dead.letter.topic"


def _group_error(response: type[Any]) -> Any:
    return lambda request, version: response(error_code=GROUP_REFUSED)


def _of_subscription(operation: Operation, response: type[Any]) -> Any:
    return whole(lambda request, asker: asker.may(operation, GROUP, request.subscription), _group_error(response))


receive_messages: Final = _of_subscription(Operation.READ, ReceiveMessagesResponse)
settle_messages: Final = _of_subscription(Operation.READ, SettleMessagesResponse)
seek_queue: Final = _of_subscription(Operation.READ, SeekQueueResponse)
describe_queues: Final = _of_subscription(Operation.DESCRIBE, DescribeQueuesResponse)
write_dead_letters: Final = on_cluster(Operation.CLUSTER_ACTION, error(WriteDeadLettersResponse))


def _may_alter(asked: AlteredSubscription, asker: Asker) -> bool:
    """Its settings like those of a group; its topics as a reader, its dead-letter topic as a writer."""
    if asked.operation == _DELETE:
        return asker.may(Operation.DELETE, GROUP, asked.name)
    targets = [one.value for one in asked.settings if one.name == _DEAD_LETTER_TOPIC and one.value]
    return (
        asker.may(Operation.ALTER_CONFIGS, GROUP, asked.name)
        and all(asker.may(Operation.READ, TOPIC, topic) for topic in asked.topics or ())
        and all(asker.may(Operation.WRITE, TOPIC, topic) for topic in targets)
    )


alter_subscriptions: Final = one_by_one(
    "subscriptions",
    "results",
    AlterSubscriptionsResponse,
    _may_alter,
    lambda asked: AlteredSubscriptionResult(asked.name, GROUP_REFUSED),
)


def describe_subscriptions(request: DescribeSubscriptionsRequest, asker: Asker) -> Admission:
    """DESCRIBE of each; of all there are, those that the client may describe."""
    if request.names is not None:
        return _described_by_name(request, asker)

    def finish(answer: DescribeSubscriptionsResponse) -> DescribeSubscriptionsResponse:
        seen = [one for one in answer.subscriptions if asker.sees(Operation.DESCRIBE, GROUP, one.name)]
        return replace(answer, subscriptions=seen)

    return Admission(request, finish)


_described_by_name: Final = one_by_one(
    "names",
    "subscriptions",
    DescribeSubscriptionsResponse,
    lambda name, asker: asker.may(Operation.DESCRIBE, GROUP, name),
    lambda name: DescribedSubscription(name, GROUP_REFUSED),
)

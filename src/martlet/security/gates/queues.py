"""Gates of the APIs of work queues, our own: subscriptions are guarded like groups of their name, messages like topics.

Proved by: tests/unit/security/test_gates.py
"""

from typing import Final

from martlet.security.gates.gate import error, on_cluster
from martlet.security.rules import Operation
from martlet.wire.messages.write_dead_letters import WriteDeadLettersResponse

write_dead_letters: Final = on_cluster(Operation.CLUSTER_ACTION, error(WriteDeadLettersResponse))

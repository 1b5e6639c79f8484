"""Says that acknowledged messages may be lost, before the commit that may lose them.

An election of an incomplete replica is never silent, whatever becomes of it: the answer to its commit may get lost, or
the process may end before the answer comes. So it is logged and counted first; the broker that carries it out says
afterwards that it has happened. An attempt that lost its comparison counts as well, and so does the next one.

Proved by: tests/unit/broker/administration/test_controller.py, tests/unit/broker/administration/test_partition_admin.py
"""

import logging
from collections.abc import Iterable

from martlet.cluster.partition_plans import Decision
from martlet.observe.metrics import BrokerMetrics

logger = logging.getLogger(__name__)


def announce_unclean(decisions: Iterable[Decision], metrics: BrokerMetrics) -> None:
    """Log and count those of these decisions that may lose something; they are about to be committed."""
    for decision in decisions:
        if decision.is_unclean:
            metrics.unclean_elections += 1
            logger.critical(
                "%s: about to elect broker %s in epoch %s by an unclean election; "
                "messages that were acknowledged may be lost",
                decision.partition,
                decision.after.leader,
                decision.after.leader_epoch,
            )

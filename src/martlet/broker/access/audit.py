"""What security has to say, as log lines of one logger, `martlet.audit`, with fields that a program can read.

Rules: no event holds a password, a token, or what a client sent as one. What strangers can cause at will is written
once per host and a while, and counted.

Proved by: tests/unit/broker/access/test_audit.py
"""

import logging
from typing import Final

from martlet.base.clock import Clock
from martlet.base.principals import Principal
from martlet.broker.ground.request import Link
from martlet.observe.logs import LogThrottle

logger: Final = logging.getLogger("martlet.audit")


class Audit:
    """Owned by the broker."""

    def __init__(self, clock: Clock) -> None:
        self._repeated = LogThrottle(logger, clock)

    def authenticated(self, link: Link, principal: Principal, how: str) -> None:
        """A client has proven who it is."""
        logger.info(
            "%s came from %s through %s by %s",
            *(principal, link.peer.host, link.listener.name, how),
            extra={"event": "authenticated", "principal": str(principal), "host": link.peer.host},
        )

    def authentication_refused(self, link: Link, reason: str) -> None:
        """A client could not prove who it is; the client does not hear the reason."""
        self._repeated.warning(
            ("authentication", link.peer.host, reason),
            f"authentication refused to {link.peer.host} through {link.listener.name}: {reason}",
        )

    def denied(self, link: Link, api: str, what: str) -> None:
        """A client asked for what it may not do."""
        self._repeated.warning(
            ("denied", str(link.principal), api, what),
            f"denied {api} to {link.principal} from {link.peer.host}: {what}",
        )

    def changed(self, link: Link, what: str) -> None:
        """Users, rules or quotas are others now."""
        logger.info(
            "%s from %s changed %s",
            *(link.principal, link.peer.host, what),
            extra={"event": "changed", "principal": str(link.principal), "host": link.peer.host},
        )

    def flush(self) -> None:
        """Say how many lines were counted instead of written."""
        self._repeated.flush()

"""Share sessions: which partitions a member fetches from at this broker, and that its requests come in order.

A session belongs to a (group, member) and lives on one connection. ShareFetch opens it with epoch 0; every further
ShareFetch or ShareAcknowledge carries the next epoch; -1 closes it. A client that is out of step opens a new one.

Rules: when a session ends, by its close or by its connection's, what its member has leased comes back at once; the
caller does that for the sessions it is handed. Opening another replaces a session without releasing anything, since the
member may still be at work; the new one knows where it has leases.

Invariants:
QSS-1 There is at most one session of a (group, member), and it is known to its connection.
QSS-2 An epoch is accepted once, and only as the successor of the one before.

Proved by: tests/unit/queues/share/test_sessions.py
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId

OPENING: Final = 0
CLOSING: Final = -1
_EPOCH_MAX: Final = (1 << 31) - 1
SESSIONS_MAX: Final = 2_000
PARTITIONS_MAX: Final = 10_000
"""Of one session, which looks at all of them with every fetch."""


class SharePartition(NamedTuple):
    """A partition as requests name it."""

    topic_id: TopicId
    partition: int


class SessionKey(NamedTuple):
    """Whose session it is; the member is the holder of its leases."""

    group_id: str
    member_id: str


@dataclass(slots=True, eq=False)
class ShareSession:
    """One open session."""

    key: SessionKey
    connection: int
    epoch: int = 1
    """The one that the next request carries."""
    partitions: dict[SharePartition, None] = field(default_factory=dict)
    """In the order in which the next fetch looks at them."""
    leased: dict[SharePartition, None] = field(default_factory=dict)
    """Where the member may have leases, whether it still fetches from there or not."""

    def add(self, partitions: Iterable[SharePartition]) -> list[SharePartition]:
        """Fetch from these as well; those that are new, which the answer names. ApiError when they are too many."""
        new = [one for one in dict.fromkeys(partitions) if one not in self.partitions]
        if len(self.partitions) + len(new) > PARTITIONS_MAX:
            reason = f"a share session has {PARTITIONS_MAX} partitions at most"
            raise ApiError(ErrorCode.INVALID_REQUEST, reason)
        self.partitions.update(dict.fromkeys(new))
        return new

    def forget(self, partitions: Iterable[SharePartition]) -> None:
        for one in partitions:
            self.partitions.pop(one, None)

    def served(self, partitions: Iterable[SharePartition]) -> None:
        """These had something to give: the next fetch looks at the others first."""
        for one in partitions:
            self.leased[one] = None
            if one in self.partitions:
                del self.partitions[one]
                self.partitions[one] = None


class ShareSessions:
    """All share sessions of one broker."""

    def __init__(self, sessions_max: int = SESSIONS_MAX) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._of_connection: dict[int, set[SessionKey]] = {}
        self._sessions_max = sessions_max

    def __len__(self) -> int:
        return len(self._sessions)

    def fetch(self, key: SessionKey, epoch: int, connection: int, *, has_acknowledgements: bool) -> ShareSession:
        """The session that a ShareFetch belongs to, a new one for epoch 0; raises ApiError when it is out of step.

        One that is closed by it is still returned, for its last acknowledgements; `close` it after them.
        """
        if epoch != OPENING:
            return self._step(key, epoch, connection)
        if has_acknowledgements:
            raise ApiError(
                ErrorCode.INVALID_REQUEST, "a request that opens a share session carries no acknowledgements"
            )
        if key not in self._sessions and len(self._sessions) >= self._sessions_max:
            reason = f"this broker holds {self._sessions_max} share sessions, which is its limit"
            raise ApiError(ErrorCode.SHARE_SESSION_LIMIT_REACHED, reason)
        before = self._remove(key)
        session = self._sessions[key] = ShareSession(key, connection)
        if before is not None:
            session.leased = before.leased
        self._of_connection.setdefault(connection, set()).add(key)
        return session

    def acknowledge(self, key: SessionKey, epoch: int, connection: int) -> ShareSession:
        """The session that a ShareAcknowledge belongs to, which it cannot open; raises ApiError."""
        if epoch == OPENING:
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, "ShareAcknowledge cannot open a share session")
        return self._step(key, epoch, connection)

    def is_open(self, session: ShareSession) -> bool:
        """Whether nothing has ended or replaced it."""
        return self._sessions.get(session.key) is session

    def close(self, session: ShareSession) -> None:
        """The session is over; what its member has leased at this broker is to be released."""
        if self.is_open(session):
            self._remove(session.key)

    def connection_closed(self, connection: int) -> list[ShareSession]:
        """The sessions of a connection are over; their leases are to be released."""
        keys = sorted(self._of_connection.get(connection, ()))
        return [session for key in keys if (session := self._remove(key)) is not None]

    def get(self, key: SessionKey) -> ShareSession | None:
        """The session of a member, if it has one."""
        return self._sessions.get(key)

    def _step(self, key: SessionKey, epoch: int, connection: int) -> ShareSession:
        session = self._sessions.get(key)
        if session is None or session.connection != connection:
            reason = f"member {key.member_id!r} of group {key.group_id!r} has no share session on this connection"
            raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, reason)
        if epoch == CLOSING:
            return session
        if epoch != session.epoch:
            reason = f"the share session expects epoch {session.epoch}, not {epoch}"
            raise ApiError(ErrorCode.INVALID_SHARE_SESSION_EPOCH, reason)
        session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def _remove(self, key: SessionKey) -> ShareSession | None:
        session = self._sessions.pop(key, None)
        if session is None:
            return None
        of_connection = self._of_connection[session.connection]
        of_connection.discard(key)
        if not of_connection:
            del self._of_connection[session.connection]
        return session

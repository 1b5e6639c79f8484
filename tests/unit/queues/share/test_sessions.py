"""Share sessions: epochs in step, one per member, over with their connection."""

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import TopicId
from martlet.queues.share.sessions import PARTITIONS_MAX, SessionKey, SharePartition, ShareSession, ShareSessions

ANN, BOB = SessionKey("g", "ann"), SessionKey("g", "bob")
TOPIC = TopicId(bytes(15) + b"\x01")
P0, P1, P2 = (SharePartition(TOPIC, number) for number in range(3))


def open_session(sessions: ShareSessions, key: SessionKey = ANN, connection: int = 1) -> ShareSession:
    return sessions.fetch(key, 0, connection, has_acknowledgements=False)


def refusal(sessions: ShareSessions, epoch: int, connection: int = 1, key: SessionKey = ANN) -> ErrorCode:
    with pytest.raises(ApiError) as caught:
        sessions.fetch(key, epoch, connection, has_acknowledgements=False)
    return caught.value.code


def test_fetches_and_acknowledgements_count_in_one_order() -> None:
    sessions = ShareSessions()
    session = open_session(sessions)
    assert sessions.fetch(ANN, 1, 1, has_acknowledgements=True) is session
    assert sessions.acknowledge(ANN, 2, 1) is session
    assert refusal(sessions, 2) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert refusal(sessions, 4) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert sessions.fetch(ANN, 3, 1, has_acknowledgements=False) is session


def test_epochs_go_round() -> None:
    sessions = ShareSessions()
    session = open_session(sessions)
    session.epoch = (1 << 31) - 1
    sessions.acknowledge(ANN, (1 << 31) - 1, 1)
    assert session.epoch == 1


def test_a_session_is_opened_by_a_fetch_without_acknowledgements_only() -> None:
    sessions = ShareSessions()
    with pytest.raises(ApiError) as caught:
        sessions.fetch(ANN, 0, 1, has_acknowledgements=True)
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    with pytest.raises(ApiError) as caught:
        sessions.acknowledge(ANN, 0, 1)
    assert caught.value.code is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert len(sessions) == 0


def test_a_session_belongs_to_its_connection() -> None:
    sessions = ShareSessions()
    open_session(sessions, ANN, 1)
    open_session(sessions, BOB, 1)
    assert refusal(sessions, 1, connection=2) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert [session.key for session in sessions.connection_closed(1)] == [ANN, BOB]
    assert sessions.connection_closed(1) == []
    assert refusal(sessions, 1) is ErrorCode.SHARE_SESSION_NOT_FOUND


def test_opening_again_replaces_the_session_and_its_connection() -> None:
    sessions = ShareSessions()
    first = open_session(sessions, connection=1)
    first.add([P0])
    first.served([P0])
    again = open_session(sessions, connection=2)
    assert list(again.leased) == [P0], "the member may still be at work there"
    assert again.partitions == {}
    assert sessions.connection_closed(1) == []
    assert sessions.fetch(ANN, 1, 2, has_acknowledgements=False) is again


def test_a_session_that_closes_takes_its_last_acknowledgements_first() -> None:
    sessions = ShareSessions()
    session = open_session(sessions)
    assert sessions.acknowledge(ANN, -1, 1) is session
    sessions.close(session)
    sessions.close(session)
    assert refusal(sessions, -1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert sessions.get(ANN) is None


def test_a_session_is_open_until_it_is_closed_or_replaced() -> None:
    sessions = ShareSessions()
    session = open_session(sessions)
    assert sessions.get(ANN) is session
    again = open_session(sessions)
    assert (sessions.is_open(session), sessions.is_open(again)) == (False, True)
    sessions.close(session)
    assert sessions.get(ANN) is again
    sessions.close(again)
    assert len(sessions) == 0


def test_a_broker_holds_a_limited_number_of_sessions() -> None:
    sessions = ShareSessions(sessions_max=1)
    open_session(sessions)
    assert refusal(sessions, 0, key=BOB) is ErrorCode.SHARE_SESSION_LIMIT_REACHED
    open_session(sessions)  # a member that opens its own again takes no further place


def test_a_session_has_a_limited_number_of_partitions() -> None:
    session = open_session(ShareSessions())
    session.add(SharePartition(TOPIC, number) for number in range(PARTITIONS_MAX))
    with pytest.raises(ApiError) as caught:
        session.add([SharePartition(TOPIC, PARTITIONS_MAX)])
    assert caught.value.code is ErrorCode.INVALID_REQUEST
    session.forget([P0])
    session.add([SharePartition(TOPIC, PARTITIONS_MAX)])


def test_partitions_take_turns() -> None:
    session = open_session(ShareSessions())
    assert session.add([P0, P1, P0, P2]) == [P0, P1, P2]
    assert session.add([P1]) == []
    session.served([P0])
    assert list(session.partitions) == [P1, P2, P0]
    session.forget([P2, P2])
    session.served([P2])
    assert list(session.partitions) == [P1, P0]

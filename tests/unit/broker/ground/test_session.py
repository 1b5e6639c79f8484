"""What a connection may request in each state of its authentication, and which states follow which."""

from collections.abc import Callable

import pytest

from martlet.base.errors import InvariantViolation
from martlet.base.principals import ANONYMOUS, Principal
from martlet.broker.ground.session import Session, SessionState
from martlet.wire.api_keys import ApiKey

ALICE = Principal("User", "alice")
OPENING = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}


def _served(session: Session) -> set[ApiKey]:
    return {key for key in ApiKey if session.may_serve(key)}


def test_without_authentication_a_session_is_that_of_the_anonymous_user_and_open_for_everything() -> None:
    session = Session()
    assert session.principal == ANONYMOUS
    assert str(session.principal) == "User:ANONYMOUS"
    assert _served(session) == set(ApiKey)


def test_before_authentication_only_what_authenticates_is_served() -> None:
    session = Session(SessionState.UNAUTHENTICATED)
    assert _served(session) == OPENING
    session.authenticated(ALICE)
    assert session.principal == ALICE
    assert _served(session) == set(ApiKey)


def test_while_a_client_authenticates_again_it_may_do_nothing_else() -> None:
    session = Session(SessionState.UNAUTHENTICATED)
    session.authenticated(ALICE)
    session.begin_again()
    assert _served(session) == {ApiKey.SASL_AUTHENTICATE}
    assert session.principal == ALICE
    session.authenticated(Principal("User", "bob"))
    assert session.principal.name == "bob"
    assert _served(session) == set(ApiKey)


def test_after_a_failure_nothing_is_served() -> None:
    session = Session(SessionState.UNAUTHENTICATED)
    session.fail()
    assert not _served(session)


@pytest.mark.parametrize(
    ("state", "step"),
    [
        (SessionState.AUTHENTICATED, lambda session: session.authenticated(ALICE)),
        (SessionState.AUTHENTICATED, lambda session: session.fail()),
        (SessionState.UNAUTHENTICATED, lambda session: session.begin_again()),
        (SessionState.FAILED, lambda session: session.authenticated(ALICE)),
        (SessionState.FAILED, lambda session: session.begin_again()),
    ],
)
def test_a_step_out_of_order_is_a_bug(state: SessionState, step: Callable[[Session], None]) -> None:
    session = Session(state)
    with pytest.raises(InvariantViolation, match="SRV-5"):
        step(session)
    assert session.state is state

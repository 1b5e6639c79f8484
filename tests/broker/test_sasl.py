"""A listener with SASL, from outside: who is let in, what a stranger may do, and how sessions end."""

import logging
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from martlet.base.errors import ApiError, ErrorCode
from martlet.client.errors import ClientError
from martlet.testing.running_broker import RunningBroker
from martlet.wire.api_keys import ApiKey
from martlet.wire.message_codec import encode
from martlet.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from martlet.wire.messages.metadata import MetadataRequest
from martlet.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from martlet.wire.messages.sasl_handshake import SaslHandshakeRequest
from tests.broker.raw_client import ConnectionClosed, RawClient
from tests.broker.sasl import (
    LISTENERS,
    PASSWORD,
    add_user,
    address_of,
    alter_users,
    connect,
    credential,
    log_in,
    remove_user,
    security,
)

REFUSED = ErrorCode.SASL_AUTHENTICATION_FAILED
MakeBroker = Callable[..., RunningBroker]


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningBroker]:
    with RunningBroker(**LISTENERS) as running:
        add_user(running, "alice")
        yield running


@pytest.fixture
def stranger(guarded: RunningBroker) -> Iterator[RawClient]:
    with RawClient(address_of(guarded, "clients")) as connection:
        yield connection


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_with_the_right_password_is_served(stranger: RawClient, mechanism: str) -> None:
    answer = log_in(stranger, mechanism=mechanism)
    assert (answer.error_code, answer.session_lifetime_ms) == (0, 0)
    assert stranger.call(MetadataRequest([]), 12).brokers


def test_wrong_passwords_and_unknown_users_get_the_same_answer_in_the_same_time(guarded: RunningBroker) -> None:
    answers, seconds = [], []
    for name, password in (("alice", "wrong"), ("nobody", PASSWORD)):
        with RawClient(address_of(guarded, "clients")) as client:
            begun = time.monotonic()
            answers.append(log_in(client, name, password))
            seconds.append(time.monotonic() - begun)
            with pytest.raises(ConnectionClosed):
                client.call(MetadataRequest([]), 12)
    assert answers[0] == answers[1]
    assert answers[0].error_code == REFUSED
    assert all(0.25 < taken < 2 for taken in seconds)


@pytest.mark.parametrize("key", [ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS])
def test_before_authentication_nothing_else_is_served(stranger: RawClient, key: ApiKey) -> None:
    stranger.send(key, 0 if key is ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS else 9, b"\0" * 40)
    with pytest.raises(ConnectionClosed):
        stranger.receive_frame()


def test_a_mechanism_that_is_not_offered_is_named_with_those_that_are(stranger: RawClient) -> None:
    for_plain = stranger.call(SaslHandshakeRequest("PLAIN"), 1)
    assert for_plain.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert for_plain.mechanisms == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    with pytest.raises(ConnectionClosed):
        stranger.call(SaslHandshakeRequest("SCRAM-SHA-512"), 1)


def test_everything_sent_in_one_write_is_answered_in_order(stranger: RawClient) -> None:
    frames = [
        stranger.frame(ApiKey.SASL_HANDSHAKE, 1, encode(SaslHandshakeRequest("SCRAM-SHA-512"), 1))[1],
        stranger.frame(ApiKey.SASL_AUTHENTICATE, 2, encode(SaslAuthenticateRequest(b"n,,n=alice,r=abc"), 2))[1],
        stranger.frame(ApiKey.SASL_AUTHENTICATE, 2, encode(SaslAuthenticateRequest(b"c=biws,r=abc,p=AAAA"), 2))[1],
        stranger.frame(ApiKey.METADATA, 12, encode(MetadataRequest([]), 12))[1],
    ]
    stranger.send_bytes(b"".join(frames))
    for _ in range(3):
        stranger.receive_frame()
    with pytest.raises(ConnectionClosed):
        stranger.receive_frame()


def test_a_malformed_message_is_answered_and_not_left_waiting(stranger: RawClient) -> None:
    stranger.call(SaslHandshakeRequest("SCRAM-SHA-256"), 1)
    assert stranger.call(SaslAuthenticateRequest(b"n,,n=,r=abc"), 2).error_code == REFUSED


def test_a_large_frame_of_a_stranger_ends_the_connection(stranger: RawClient) -> None:
    stranger.send_bytes((70_000).to_bytes(4, "big"))
    with pytest.raises(ConnectionClosed):
        stranger.receive_frame()


def test_a_listener_without_sasl_says_so_and_goes_on(guarded: RunningBroker) -> None:
    with RawClient(address_of(guarded, "open")) as client:
        assert client.call(SaslHandshakeRequest("SCRAM-SHA-512"), 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(MetadataRequest([]), 12).brokers


def test_a_user_that_is_changed_or_removed_loses_the_connection_at_once(guarded: RunningBroker) -> None:
    add_user(guarded, "bob")
    changes = [
        (PASSWORD, partial(add_user, guarded, "bob", "another")),
        ("another", partial(remove_user, guarded, "bob")),
    ]
    for password, change in changes:
        with RawClient(address_of(guarded, "clients")) as client, RawClient(address_of(guarded, "clients")) as other:
            assert log_in(client, "bob", password).error_code == 0
            assert log_in(other, "alice").error_code == 0
            change()
            begun = time.monotonic()
            with pytest.raises(ConnectionClosed):
                client.receive_frame()
            assert time.monotonic() - begun < 1
            assert other.call(MetadataRequest([]), 12).brokers


def test_a_client_may_prove_again_who_it_is_but_not_become_another(make_broker: MakeBroker) -> None:
    broker = make_broker(**LISTENERS, sasl_session_ms=60_000)
    add_user(broker, "alice")
    add_user(broker, "bob")
    with RawClient(address_of(broker, "clients")) as client:
        assert 0 < log_in(client).session_lifetime_ms <= 60_000
        too_soon = client.call(SaslHandshakeRequest("SCRAM-SHA-512"), 1)
        assert too_soon.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(MetadataRequest([]), 12).brokers
        time.sleep(1.05)  # real time: the least between two authentications
        assert log_in(client).error_code == 0
        assert client.call(MetadataRequest([]), 12).brokers
        time.sleep(1.05)
        assert log_in(client, "bob").error_code == REFUSED
        with pytest.raises(ConnectionClosed):
            client.receive_frame()


def test_a_session_that_is_over_ends_with_the_next_ordinary_request(make_broker: MakeBroker) -> None:
    broker = make_broker(**LISTENERS, sasl_session_ms=1_200)
    add_user(broker, "alice")
    with RawClient(address_of(broker, "clients")) as client:
        assert log_in(client).error_code == 0
        time.sleep(1.3)  # real time: the session's
        assert log_in(client).error_code == 0, "proving it again is allowed after the end too"
        assert client.call(MetadataRequest([]), 12).brokers
        time.sleep(1.3)
        with pytest.raises(ConnectionClosed):
            client.call(MetadataRequest([]), 12)


def test_users_are_described_without_what_is_in_their_credentials(guarded: RunningBroker) -> None:
    with RawClient(address_of(guarded, "open")) as client:
        asked = [UserName("alice"), UserName("nobody"), UserName("twice"), UserName("twice")]
        answer = client.call(DescribeUserScramCredentialsRequest(asked), 0)
        by_name = {result.user: result for result in answer.results}
        assert [(info.mechanism, info.iterations) for info in by_name["alice"].credential_infos] == [
            (1, 4096),
            (2, 4096),
        ]
        assert by_name["nobody"].error_code == ErrorCode.RESOURCE_NOT_FOUND
        assert by_name["twice"].error_code == ErrorCode.DUPLICATE_RESOURCE
        assert "alice" in {result.user for result in client.call(DescribeUserScramCredentialsRequest(None), 0).results}


def test_credentials_that_cannot_be_are_refused_by_user(guarded: RunningBroker) -> None:
    with RawClient(address_of(guarded, "open")) as client:
        weak, reserved = credential("carol", iterations=4095), credential("__martlet_broker")
        unknown = credential("dave")
        unknown.mechanism = 7
        answer = alter_users(
            client, weak, reserved, unknown, credential("erin"), credential("erin"), credential("fine")
        )
        assert {result.user: result.error_code for result in answer.results} == {
            "carol": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "__martlet_broker": ErrorCode.UNACCEPTABLE_CREDENTIAL,
            "dave": ErrorCode.UNSUPPORTED_SASL_MECHANISM,
            "erin": ErrorCode.DUPLICATE_RESOURCE,
            "fine": ErrorCode.NONE,
        }


def test_the_client_of_ours_logs_in_and_says_why_it_could_not(guarded: RunningBroker) -> None:
    address = address_of(guarded, "clients")
    assert connect(address, security()) == [address]
    assert connect(address, security(sasl_mechanism="SCRAM-SHA-256")) == [address]
    with pytest.raises((ApiError, ClientError), match="credentials were refused"):
        connect(address, security(password="wrong"))


def test_no_password_or_proof_reaches_the_log(guarded: RunningBroker, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        add_user(guarded, "canary", "canary-password")
        for password in ("canary-password", "canary-wrong"):
            with RawClient(address_of(guarded, "clients")) as client:
                log_in(client, "canary", password)
    text = "\n".join(f"{record.getMessage()} {vars(record)}" for record in caplog.records)
    assert "User:canary came from" in text
    assert "canary-password" not in text
    assert "canary-wrong" not in text

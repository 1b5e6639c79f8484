"""Fields of messages that must not be shown: what holds passwords, or is as good as one."""

from martlet.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from martlet.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def test_what_proves_an_identity_is_not_in_the_text_of_its_message() -> None:
    canary = b"canary"
    messages = [
        SaslAuthenticateRequest(auth_bytes=canary),
        SaslAuthenticateResponse(auth_bytes=canary),
        ScramCredentialUpsertion(name="alice", salt=canary, salted_password=canary),
    ]
    assert [str(message) for message in messages if "canary" in str(message)] == []
    assert str(messages[2]) == "ScramCredentialUpsertion(name='alice', mechanism=0, iterations=0)"

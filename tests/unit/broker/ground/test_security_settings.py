"""Settings of security that are lists of words, and which listeners let in anybody."""

import pytest

from martlet.broker.ground.listeners import exposed_listeners
from martlet.broker.ground.security_settings import sasl_mechanisms, super_users
from martlet.broker.ground.settings import BrokerSettings
from martlet.security.sasl import Mechanism


def test_mechanisms_and_super_users_are_read_in_their_order() -> None:
    assert sasl_mechanisms("plain, SCRAM-SHA-512,PLAIN") == (Mechanism.PLAIN, Mechanism.SCRAM_SHA_512)
    assert super_users("User:CN=a,O=b; User:admin;") == ("User:CN=a,O=b", "User:admin")
    assert super_users("") == ()


def test_what_is_no_mechanism_or_no_principal_is_refused_with_what_is_allowed() -> None:
    with pytest.raises(ValueError, match="sasl_mechanisms: 'GSSAPI' is not offered; allowed are SCRAM-SHA-256"):
        sasl_mechanisms("SCRAM-SHA-256,GSSAPI")
    with pytest.raises(ValueError, match="super_users: 'admin' is no principal; write User:NAME"):
        super_users("admin")


@pytest.mark.parametrize(
    ("settings", "exposed"),
    [
        ({}, []),
        ({"kafka": "0.0.0.0:9092"}, ["kafka"]),
        ({"kafka": "0.0.0.0:9092", "insecure_listen": "kafka"}, []),
        ({"kafka": "127.0.0.5:9092"}, []),
        ({"kafka": "[::1]:9092"}, []),
        ({"kafka": "localhost:9092"}, []),
        ({"kafka": "broker.example:9092"}, ["kafka"]),
        ({"listeners": "a=sasl_plain://10.0.0.1:1, b=tls://10.0.0.1:2, c=sasl_tls://10.0.0.1:3"}, ["b"]),
        ({"listeners": "b=tls://10.0.0.1:2", "tls_client_auth": "required"}, []),
        ({"listeners": "b=tls://10.0.0.1:2", "tls_client_auth": "requested"}, ["b"]),
    ],
)
def test_a_listener_for_other_machines_asks_who_they_are_or_is_named(
    settings: dict[str, str], exposed: list[str]
) -> None:
    assert [one.name for one in exposed_listeners(BrokerSettings(**settings))] == exposed  # type: ignore[arg-type]


def test_a_name_that_no_listener_has_is_refused() -> None:
    with pytest.raises(ValueError, match="insecure_listen: there is no listener 'kafak'; there is kafka"):
        exposed_listeners(BrokerSettings(insecure_listen="kafak"))

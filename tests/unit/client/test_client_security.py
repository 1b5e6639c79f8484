"""What people write about the security of a client, under Kafka's names."""

import pytest

from martlet.base.secret import Secret
from martlet.client.security import ClientSecurity, SecurityProtocol, security_from
from martlet.security.sasl import Mechanism

LOGIN = {"security.protocol": "SASL_SSL", "sasl.username": "alice", "sasl.password": "wonderland"}


def test_without_anything_nothing_protects_the_connection() -> None:
    assert security_from({}) == ClientSecurity()
    assert ClientSecurity().tls_context() is None


def test_kafkas_names_are_read_also_as_librdkafka_writes_them() -> None:
    found = security_from({**LOGIN, "sasl.mechanisms": "SCRAM-SHA-256", "ssl.ca.location": "ca.pem"})
    assert (found.protocol, found.mechanism) == (SecurityProtocol.SASL_SSL, Mechanism.SCRAM_SHA_256)
    assert (found.username, found.password, found.ca_file) == ("alice", Secret("wonderland"), "ca.pem")
    assert "wonderland" not in repr(found)
    assert found.checks_host


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"security.protocl": "SSL"}, "there is no security setting 'security.protocl'; there are security.protocol"),
        ({"security.protocol": "TLS"}, "security.protocol is 'TLS'; allowed are PLAINTEXT, SSL"),
        ({"security.protocol": "SASL_SSL"}, "SASL_SSL needs sasl.username and sasl.password"),
        ({**LOGIN, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism is 'GSSAPI'; allowed are SCRAM-SHA-256"),
        ({**LOGIN, "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER is not offered by this client"),
        (
            {**LOGIN, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"},
            "PLAIN would send the password in clear",
        ),
        ({"ssl.endpoint.identification.algorithm": "maybe"}, "allowed are https and none"),
    ],
)
def test_what_contradicts_itself_is_refused_with_what_is_allowed(values: dict[str, str], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        security_from(values)


def test_the_host_is_not_checked_only_where_that_is_said() -> None:
    assert not security_from({"ssl.endpoint.identification.algorithm": "none"}).checks_host

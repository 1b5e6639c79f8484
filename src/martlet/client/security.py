"""How a client of ours protects its connections and proves who it is, under Kafka's names.

`security_from` reads what people write: `security.protocol`, `sasl.mechanism`, `sasl.username`, `sasl.password`,
`ssl.ca.location` and the rest of `NAMES`; what contradicts itself is a ValueError with a sentence.

Proved by: tests/broker/test_sasl.py
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeVar

from martlet.base.secret import Secret
from martlet.security.sasl import Mechanism

Choice = TypeVar("Choice", bound=Enum)


class SecurityProtocol(Enum):
    """Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def encrypts(self) -> bool:
        """Whether TLS protects the connection."""
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def authenticates(self) -> bool:
        """Whether the client proves by SASL who it is."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


NAMES: Final = (
    "security.protocol",
    "sasl.mechanism",
    "sasl.username",
    "sasl.password",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.endpoint.identification.algorithm",
)
_OTHER_NAMES: Final = {"sasl.mechanisms": "sasl.mechanism"}
"""Names that librdkafka has for the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """What protects every connection of one client."""

    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    mechanism: Mechanism = Mechanism.SCRAM_SHA_512
    username: str = ""
    password: Secret | None = None
    ca_file: str = ""
    """Authorities that the broker's certificate is checked against; empty for those of the system."""
    certificate_file: str = ""
    key_file: str = ""
    checks_host: bool = True
    """Whether the certificate must be for the host that was dialled."""

    def tls_context(self) -> ssl.SSLContext | None:
        """A context for connections that TLS protects; raises OSError for files that cannot be used."""
        if not self.protocol.encrypts:
            return None
        context = ssl.create_default_context(cafile=self.ca_file or None)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.check_hostname = self.checks_host
        if self.certificate_file:
            context.load_cert_chain(self.certificate_file, self.key_file or None)
        return context


def security_from(values: Mapping[str, str]) -> ClientSecurity:
    """The security that these settings describe."""
    given = {_OTHER_NAMES.get(name, name): text for name, text in values.items()}
    for name in given:
        if name not in NAMES:
            raise ValueError(f"there is no security setting {name!r}; there are {', '.join(NAMES)}")
    protocol = _one_of(SecurityProtocol, "security.protocol", given.get("security.protocol", "PLAINTEXT").upper())
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    mechanism = _one_of(Mechanism, "sasl.mechanism", given.get("sasl.mechanism", "SCRAM-SHA-512").upper())
    if protocol.authenticates and not (username and password):
        raise ValueError(f"{protocol.value} needs sasl.username and sasl.password")
    if protocol.authenticates and mechanism is Mechanism.OAUTHBEARER:
        raise ValueError(
            "OAUTHBEARER is not offered by this client; allowed are SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN"
        )
    if mechanism is Mechanism.PLAIN and protocol is SecurityProtocol.SASL_PLAINTEXT:
        raise ValueError("PLAIN would send the password in clear; use SASL_SSL, or a SCRAM mechanism")
    return ClientSecurity(
        protocol=protocol,
        mechanism=mechanism,
        username=username,
        password=Secret(password) if password else None,
        ca_file=given.get("ssl.ca.location", ""),
        certificate_file=given.get("ssl.certificate.location", ""),
        key_file=given.get("ssl.key.location", ""),
        checks_host=_checks_host(given.get("ssl.endpoint.identification.algorithm", "https")),
    )


def _checks_host(word: str) -> bool:
    if word not in ("https", "none", ""):
        raise ValueError(f"ssl.endpoint.identification.algorithm is {word!r}; allowed are https and none")
    return word == "https"


def _one_of(kind: type[Choice], name: str, word: str) -> Choice:
    try:
        return kind(word)
    except ValueError:
        allowed = ", ".join(str(one.value) for one in kind)
        raise ValueError(f"{name} is {word!r}; allowed are {allowed}") from None

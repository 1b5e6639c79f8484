"""From a client's certificate to its principal.

A mode takes one field, because a pattern over the whole name could be made to match what an attacker may choose. `dn`
is the whole distinguished name as RFC 2253 writes it, escaped, which is also Kafka's default; the other modes refuse a
certificate that has none or several of their field.

Proved by: tests/unit/security/test_certificates.py
"""

from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, Final

from martlet.security.errors import AuthenticationRefused


class PrincipalFrom(Enum):
    """Which part of a certificate names its owner; the values are the words of the setting."""

    DN = "dn"
    CN = "cn"
    SAN_DNS = "san_dns"
    SAN_URI = "san_uri"


_SHORT: Final = {
    "commonName": "CN",
    "organizationalUnitName": "OU",
    "organizationName": "O",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
_SPECIAL: Final = frozenset(',+"\\<>;=')


def name_in(certificate: Mapping[str, Any], taken_from: PrincipalFrom) -> str:
    """The name of a certificate's owner, the certificate as `ssl` gives it; raises AuthenticationRefused."""
    if taken_from is PrincipalFrom.DN:
        name = distinguished_name(certificate.get("subject", ()))
        if not name:
            raise AuthenticationRefused("the certificate has no subject")
        return name
    if taken_from is PrincipalFrom.CN:
        values = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    else:
        kind = "DNS" if taken_from is PrincipalFrom.SAN_DNS else "URI"
        values = [value for key, value in certificate.get("subjectAltName", ()) if key == kind]
    if len(values) != 1 or not values[0]:
        raise AuthenticationRefused(f"the certificate has {len(values)} names of the kind {taken_from.value}, not one")
    name = str(values[0])
    if any(character < " " or character == "\x7f" for character in name):
        raise AuthenticationRefused("the certificate's name holds control characters")
    return name


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """The subject as RFC 2253 writes it: the last part first."""
    return ",".join(
        "+".join(f"{_SHORT.get(key, key)}={_escaped(value)}" for key, value in part) for part in reversed(subject)
    )


def _escaped(value: str) -> str:
    text = "".join(
        f"\\{character}" if character in _SPECIAL else f"\\{ord(character):02X}" if character < " " else character
        for character in value
    )
    if value[:1] in ("#", " "):
        text = "\\" + text
    if len(value) > 1 and value.endswith(" "):
        text = text[:-1] + "\\ "
    return text

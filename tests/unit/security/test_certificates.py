"""Names in certificates: each mode takes its one field, and nothing an attacker writes into another."""

from typing import Any

import pytest

from martlet.security.certificates import PrincipalFrom, distinguished_name, name_in
from martlet.security.errors import AuthenticationRefused

ALICE: dict[str, Any] = {
    "subject": ((("countryName", "DE"),), (("organizationName", "Example, Ltd"),), (("commonName", "alice"),)),
    "subjectAltName": (("DNS", "alice.example"), ("URI", "spiffe://example/alice")),
}


@pytest.mark.parametrize(
    ("taken_from", "name"),
    [
        (PrincipalFrom.DN, "CN=alice,O=Example\\, Ltd,C=DE"),
        (PrincipalFrom.CN, "alice"),
        (PrincipalFrom.SAN_DNS, "alice.example"),
        (PrincipalFrom.SAN_URI, "spiffe://example/alice"),
    ],
)
def test_each_mode_takes_its_own_field(taken_from: PrincipalFrom, name: str) -> None:
    assert name_in(ALICE, taken_from) == name


def test_a_crafted_organisation_does_not_become_another_name() -> None:
    crafted = {"subject": ((("organizationName", "x,CN=admin"),), (("commonName", "mallory"),))}
    assert name_in(crafted, PrincipalFrom.CN) == "mallory"
    assert name_in(crafted, PrincipalFrom.DN) == "CN=mallory,O=x\\,CN\\=admin"


@pytest.mark.parametrize(
    ("certificate", "taken_from"),
    [
        ({}, PrincipalFrom.DN),
        ({"subject": ((("commonName", "a"),), (("commonName", "b"),))}, PrincipalFrom.CN),
        ({"subject": ((("organizationName", "a"),),)}, PrincipalFrom.CN),
        ({"subject": ((("commonName", "a\nb"),),)}, PrincipalFrom.CN),
        ({"subjectAltName": (("DNS", "a"), ("DNS", "b"))}, PrincipalFrom.SAN_DNS),
        ({"subjectAltName": (("DNS", "a"),)}, PrincipalFrom.SAN_URI),
    ],
)
def test_a_certificate_without_one_such_name_is_refused(certificate: Any, taken_from: PrincipalFrom) -> None:
    with pytest.raises(AuthenticationRefused):
        name_in(certificate, taken_from)


def test_special_characters_are_escaped_as_rfc_2253_says() -> None:
    subject = ((("commonName", ' #lead"+<>;= trail '),), (("domainComponent", "#x"), ("userId", "a\x00b")))
    assert distinguished_name(subject) == 'DC=\\#x+UID=a\\00b,CN=\\ #lead\\"\\+\\<\\>\\;\\= trail\\ '

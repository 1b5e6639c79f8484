"""The audit: one logger, readable fields, and repeats of what strangers cause counted instead of written."""

import logging

import pytest

from martlet.base.addresses import Address
from martlet.base.clock import SystemClock
from martlet.base.principals import Principal
from martlet.broker.access.audit import Audit
from martlet.broker.ground.request import Link

LINK = Link(Address("10.0.0.9", 5), Address("10.0.0.1", 9092))


def test_events_carry_who_and_from_where(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(SystemClock())
    with caplog.at_level(logging.INFO, "martlet.audit"):
        audit.authenticated(LINK, Principal("User", "alice"), "SCRAM-SHA-512")
        audit.changed(LINK, "the rules of topic 'payments'")
    first, second = caplog.records
    assert first.getMessage() == "User:alice came from 10.0.0.9 through kafka by SCRAM-SHA-512"
    assert vars(first)["principal"] == "User:alice"
    assert second.getMessage() == "User:ANONYMOUS from 10.0.0.9 changed the rules of topic 'payments'"


def test_what_a_stranger_repeats_is_written_once(caplog: pytest.LogCaptureFixture) -> None:
    audit = Audit(SystemClock())
    for _ in range(100):
        audit.authentication_refused(LINK, "wrong password of user 'alice'")
        audit.denied(LINK, "FETCH", "READ topic 'payments'")
    assert [record.getMessage() for record in caplog.records] == [
        "authentication refused to 10.0.0.9 through kafka: wrong password of user 'alice'",
        "denied FETCH to User:ANONYMOUS from 10.0.0.9: READ topic 'payments'",
    ]

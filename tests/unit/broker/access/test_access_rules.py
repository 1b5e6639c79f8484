"""The access rules of a broker: what the metadata holds is in force, what is not understood allows nothing."""

import pytest

from martlet.base.addresses import Address
from martlet.base.clock import SystemClock
from martlet.base.errors import ProtocolViolation
from martlet.broker.access.access_rules import AccessRules, read_rules, write_pattern, write_rule
from martlet.broker.access.audit import Audit
from martlet.broker.ground.request import Link
from martlet.cluster.records import AccessRecord, AccessRule
from martlet.cluster.security_decisions import plan_access
from martlet.security.authorizer import Authorizer
from martlet.security.rules import Operation
from tests.unit.cluster.images import FollowedStore
from tests.unit.security.rule_samples import rule

PAYMENTS = ("topic", "literal", "payments")
READ = AccessRule("User:*", "*", "read", "allow")


def link() -> Link:
    return Link(Address("10.0.0.9", 5), Address("10.0.0.1", 9092))


def rules_over(store: FollowedStore, *super_users: str) -> AccessRules:
    return AccessRules(Authorizer(super_users), store.image, Audit(SystemClock()))


def test_rules_are_read_as_they_were_written() -> None:
    for one in (rule(Operation.READ), rule(Operation.ALL, "x", prefixed=True, deny=True, host="10.0.0.1")):
        record = AccessRecord(write_pattern(one.pattern), (write_rule(one),))
        assert read_rules(record) == [one]


def test_what_the_metadata_holds_is_in_force_at_once_and_until_it_changes() -> None:
    store = FollowedStore()
    store.commit(plan_access([(AccessRecord(PAYMENTS), [READ])]))
    rules, client = rules_over(store), link()
    assert rules.may(client, Operation.READ, "payments", "FETCH")
    stored = store.image.access_records()[PAYMENTS]
    rules.follow(store.commit(plan_access([(stored, [])])))
    assert not rules.may(client, Operation.READ, "payments", "FETCH")


def test_words_of_a_later_version_allow_nothing_and_deny_everything(caplog: pytest.LogCaptureFixture) -> None:
    denies = AccessRule("User:*", "*", "levitate", "deny")
    allows = AccessRule("User:*", "*", "levitate", "allow")
    assert read_rules(AccessRecord(PAYMENTS, (allows,))) == []
    assert [found.operation for found in read_rules(AccessRecord(PAYMENTS, (denies,)))] == [Operation.ALL]
    assert read_rules(AccessRecord(("planet", "literal", "mars"), (READ,))) == []
    assert "not understood here" in caplog.text


def test_acl_5_an_api_without_a_gate_is_served_to_super_users_only() -> None:
    request = object()
    with pytest.raises(ProtocolViolation, match="not served under access rules"):
        rules_over(FollowedStore()).admit(9_999, request, link(), 0)
    admitted = rules_over(FollowedStore(), "User:ANONYMOUS").admit(9_999, request, link(), 0)
    assert admitted.request is request

"""The authorizer: super users, what viewers remember, addresses in one form, reasons."""

import pytest

from martlet.base.principals import Principal
from martlet.security.authorizer import Authorizer, plain_host
from martlet.security.rules import CLUSTER_NAME, Operation, ResourceKind, bits_of
from tests.unit.security.rule_samples import rule

ALICE = Principal("User", "alice")
TOPIC = ResourceKind.TOPIC


def test_a_super_user_may_do_everything_even_what_is_denied() -> None:
    authorizer = Authorizer(["User:alice"])
    authorizer.table.apply((), [rule(Operation.ALL, "*", deny=True, user="User:*")])
    viewer = authorizer.viewer(ALICE, "10.0.0.1")
    assert viewer.may(Operation.WRITE, TOPIC, "payments")
    assert viewer.may_somewhere(Operation.WRITE, TOPIC)
    assert viewer.may_on_cluster(Operation.ALTER)
    assert "super user" in authorizer.explain(ALICE, "10.0.0.1", Operation.READ, TOPIC, "payments").reason


def test_before_rules_are_known_only_super_users_may_anything() -> None:
    viewer = Authorizer(["User:admin"]).viewer(ALICE, "10.0.0.1")
    assert not viewer.may(Operation.DESCRIBE, TOPIC, "payments")
    assert not viewer.may_somewhere(Operation.WRITE, TOPIC)


def test_a_change_of_the_rules_is_in_force_with_the_next_question() -> None:
    authorizer = Authorizer()
    viewer = authorizer.viewer(ALICE, "10.0.0.1")
    allow = rule(Operation.READ)
    assert not viewer.may(Operation.READ, TOPIC, "payments")
    authorizer.table.apply((), [allow])
    assert viewer.may(Operation.READ, TOPIC, "payments")
    authorizer.table.apply([allow], ())
    assert not viewer.may(Operation.READ, TOPIC, "payments")


def test_a_viewer_that_is_asked_for_very_many_names_stays_right() -> None:
    authorizer = Authorizer()
    authorizer.table.apply((), [rule(Operation.READ, "team", prefixed=True)])
    viewer = authorizer.viewer(ALICE, "10.0.0.1")
    assert all(viewer.may(Operation.READ, TOPIC, f"team{number}") for number in range(10_000))
    assert not viewer.may(Operation.READ, TOPIC, "other")


def test_authorized_operations_are_those_of_the_kind_only() -> None:
    authorizer = Authorizer()
    authorizer.table.apply((), [rule(Operation.ALL, "workers", kind=ResourceKind.GROUP)])
    bits = authorizer.viewer(ALICE, "h").authorized_operations(ResourceKind.GROUP, "workers")
    configs = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
    assert bits == bits_of((Operation.READ, Operation.DELETE, Operation.DESCRIBE, *configs))


def test_a_reason_names_the_rule_that_decides() -> None:
    authorizer = Authorizer()
    ask = (ALICE, "10.0.0.1", Operation.ALTER, ResourceKind.CLUSTER, CLUSTER_NAME)
    assert authorizer.explain(*ask).reason == "no rule allows it"
    authorizer.table.apply((), [rule(Operation.ALTER, CLUSTER_NAME, kind=ResourceKind.CLUSTER)])
    decision = authorizer.explain(*ask)
    assert decision.allowed
    assert decision.reason == "User:alice from * may ALTER cluster 'kafka-cluster'"
    authorizer.table.apply((), [rule(Operation.ALL, CLUSTER_NAME, kind=ResourceKind.CLUSTER, deny=True)])
    assert authorizer.explain(*ask).reason == "User:alice from * must not ALL cluster 'kafka-cluster'"


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("unknown", "unknown"),
    ],
)
def test_one_address_has_one_text(text: str, plain: str) -> None:
    assert plain_host(text) == plain

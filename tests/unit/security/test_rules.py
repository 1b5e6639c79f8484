"""Access rules as data: what patterns cover and operations imply, which rules cannot be, which a filter means."""

import pytest

from martlet.security.rules import (
    CLUSTER_NAME,
    Operation,
    Pattern,
    PatternKind,
    Permission,
    ResourceKind,
    RuleFilter,
    allowed_bits,
    bits_of,
    check_rule,
    denied_bits,
)
from tests.unit.security.rule_samples import rule


def test_literals_cover_their_name_and_the_star_all_names() -> None:
    def covers(match: PatternKind, pattern: str, name: str) -> bool:
        return Pattern(ResourceKind.TOPIC, match, pattern).covers(name)

    assert covers(PatternKind.LITERAL, "pay", "pay")
    assert not covers(PatternKind.LITERAL, "pay", "payments")
    assert covers(PatternKind.LITERAL, "*", "payments")
    assert covers(PatternKind.PREFIXED, "p", "payments")
    assert not covers(PatternKind.PREFIXED, "*", "payments"), "a prefixed star means names that begin with one"


def test_reading_writing_deleting_and_altering_let_describe_and_all_lets_everything() -> None:
    for operation in (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER):
        assert allowed_bits(operation) == bits_of((operation, Operation.DESCRIBE))
    assert allowed_bits(Operation.ALTER_CONFIGS) == bits_of((Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS))
    assert allowed_bits(Operation.ALL) == bits_of(Operation)


def test_a_denial_implies_nothing_but_denying_all_denies_everything() -> None:
    assert denied_bits(Operation.READ) == bits_of((Operation.READ,))
    assert denied_bits(Operation.ALL) == bits_of(Operation)


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (rule(Operation.READ, ""), "no name"),
        (rule(Operation.ALTER, "cluster", kind=ResourceKind.CLUSTER), "kafka-cluster"),
        (rule(Operation.ALTER, "kafka", kind=ResourceKind.CLUSTER, prefixed=True), "kafka-cluster"),
        (rule(Operation.WRITE, kind=ResourceKind.GROUP), "WRITE means nothing for a GROUP"),
        (rule(Operation.READ, user="alice"), "no principal"),
        (rule(Operation.READ, user="Group:admins"), "no principal"),
        (rule(Operation.READ, host=""), "no host"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_what_is_allowed(bad: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        check_rule(bad)  # type: ignore[arg-type]


def test_rules_that_mean_something_pass() -> None:
    check_rule(rule(Operation.ALL))
    check_rule(rule(Operation.ALTER, CLUSTER_NAME, kind=ResourceKind.CLUSTER))
    check_rule(rule(Operation.WRITE, "tx-", kind=ResourceKind.TRANSACTIONAL_ID, prefixed=True, user="User:*"))


def test_a_filter_takes_what_it_names_and_covering_rules_on_request() -> None:
    literal, star, prefix = rule(Operation.READ), rule(Operation.READ, "*"), rule(Operation.READ, "pay", prefixed=True)
    every = (literal, star, prefix)
    assert all(RuleFilter().takes(one) for one in every)
    assert [one for one in every if RuleFilter(name="payments").takes(one)] == [literal]
    assert all(RuleFilter(name="payments", finds_covering=True).takes(one) for one in every)
    assert [one for one in every if RuleFilter(match=PatternKind.PREFIXED).takes(one)] == [prefix]
    assert not RuleFilter(principal="User:bob").takes(literal)
    assert not RuleFilter(permission=Permission.DENY).takes(literal)
    assert not RuleFilter(operation=Operation.WRITE).takes(literal)
    assert not RuleFilter(host="10.0.0.1").takes(literal)
    assert not RuleFilter(kind=ResourceKind.GROUP).takes(literal)

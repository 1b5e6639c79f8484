"""The rule table against a linear scan of all rules, and the traps that others fell into."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from martlet.security.rule_table import RuleTable
from martlet.security.rules import Operation, Permission, ResourceKind, Rule, allowed_bits, denied_bits
from tests.unit.security.rule_samples import HOSTS, NAMES, RULES, rule

TOPIC = ResourceKind.TOPIC


def bits_by_scan(rules: Iterable[Rule], principal: str, host: str, kind: ResourceKind, name: str) -> int:
    allowed = denied = 0
    for one in rules:
        if (
            one.pattern.kind is kind
            and one.pattern.covers(name)
            and one.principal in (principal, "User:*")
            and one.host in (host, "*")
        ):
            if one.permission is Permission.ALLOW:
                allowed |= allowed_bits(one.operation)
            else:
                denied |= denied_bits(one.operation)
    return allowed & ~denied


@given(
    rules=st.lists(RULES, max_size=20),
    principal=st.sampled_from(["User:alice", "User:bob", "User:carol"]),
    host=st.sampled_from([*HOSTS[1:], "10.0.0.3"]),
    name=st.sampled_from([*NAMES[1:], "other"]),
    operation=st.sampled_from(Operation),
)
def test_table_and_explanation_agree_with_a_scan_of_all_rules(
    rules: list[Rule], principal: str, host: str, name: str, operation: Operation
) -> None:
    table = RuleTable(rules)
    bits = table.bits(principal, host, TOPIC, name)
    assert bits == bits_by_scan(rules, principal, host, TOPIC, name)
    allowed, because = table.explain(principal, host, operation, TOPIC, name)
    assert allowed == bool(bits >> operation & 1)
    assert set(because) <= set(rules)
    if bits >> operation & 1:
        assert table.may_somewhere(principal, host, operation, TOPIC)


@given(before=st.lists(RULES, max_size=12), removed=st.lists(RULES, max_size=12), added=st.lists(RULES, max_size=12))
def test_a_changed_table_equals_one_made_of_what_is_left(
    before: list[Rule], removed: list[Rule], added: list[Rule]
) -> None:
    table = RuleTable(before)
    generation = table.generation
    table.apply(removed, added)
    fresh = RuleTable((set(before) - set(removed)) | set(added))
    assert set(table) == set(fresh)
    assert len(table) == len(fresh)
    assert table.generation > generation
    for name in NAMES[1:]:
        assert table.bits("User:alice", "10.0.0.1", TOPIC, name) == fresh.bits("User:alice", "10.0.0.1", TOPIC, name)


def test_without_a_rule_that_allows_nothing_is_allowed() -> None:
    assert RuleTable().explain("User:alice", "10.0.0.1", Operation.READ, TOPIC, "payments") == (False, ())


def test_a_longer_prefix_does_not_hide_a_shorter_one() -> None:
    table = RuleTable([rule(Operation.READ, "f", prefixed=True), rule(Operation.WRITE, "fooa", prefixed=True)])
    assert table.explain("User:alice", "h", Operation.READ, TOPIC, "foobar")[0]
    assert not table.explain("User:alice", "h", Operation.WRITE, TOPIC, "foobar")[0]


def test_a_denial_wins_over_whatever_is_more_specific() -> None:
    denial = rule(Operation.READ, "*", deny=True, user="User:*")
    table = RuleTable([rule(Operation.ALL), denial])
    assert table.explain("User:alice", "h", Operation.READ, TOPIC, "payments") == (False, (denial,))
    assert table.explain("User:alice", "h", Operation.DESCRIBE, TOPIC, "payments")[0], "a denial implies nothing"


def test_writing_somewhere_needs_a_pattern_that_no_denial_covers_whole() -> None:
    def may(*rules: Rule) -> bool:
        return RuleTable(rules).may_somewhere("User:alice", "h", Operation.WRITE, TOPIC)

    allow = rule(Operation.WRITE, "pay", prefixed=True)
    assert may(allow)
    assert may(allow, rule(Operation.WRITE, "payments", deny=True))
    assert may(allow, rule(Operation.WRITE, "payments", deny=True, prefixed=True))
    assert not may(allow, rule(Operation.WRITE, "p", deny=True, prefixed=True))
    assert not may(allow, rule(Operation.ALL, "*", deny=True, user="User:*"))
    assert may(rule(Operation.WRITE, "*"), rule(Operation.WRITE, "*", deny=True, prefixed=True))
    assert may(rule(Operation.WRITE, "*"), rule(Operation.WRITE, "p", deny=True, prefixed=True))
    assert not may(rule(Operation.READ, "*"))


def test_writing_somewhere_stays_allowed_beside_denials_for_other_hosts() -> None:
    table = RuleTable([rule(Operation.WRITE), rule(Operation.WRITE, deny=True, host="10.0.0.2")])
    assert table.may_somewhere("User:alice", "10.0.0.1", Operation.WRITE, TOPIC)
    assert not table.may_somewhere("User:alice", "10.0.0.2", Operation.WRITE, TOPIC)

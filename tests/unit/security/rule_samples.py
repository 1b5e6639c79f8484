"""Access rules for tests: short ways to write them, and random ones that meet each other often."""

from hypothesis import strategies as st

from martlet.security.rules import Operation, Pattern, PatternKind, Permission, ResourceKind, Rule

NAMES = ("*", "f", "foo", "fooa", "foobar", "bar", "payments", "pay")
USERS = ("User:*", "User:alice", "User:bob")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")


def rule(
    operation: Operation,
    name: str = "payments",
    *,
    prefixed: bool = False,
    deny: bool = False,
    user: str = "User:alice",
    host: str = "*",
    kind: ResourceKind = ResourceKind.TOPIC,
) -> Rule:
    """A rule that allows alice something from everywhere, unless said otherwise."""
    match = PatternKind.PREFIXED if prefixed else PatternKind.LITERAL
    return Rule(Pattern(kind, match, name), user, host, operation, Permission.DENY if deny else Permission.ALLOW)


RULES = st.builds(
    rule,
    st.sampled_from(Operation),
    st.sampled_from(NAMES),
    prefixed=st.booleans(),
    deny=st.booleans(),
    user=st.sampled_from(USERS),
    host=st.sampled_from(HOSTS),
    kind=st.sampled_from([ResourceKind.TOPIC, ResourceKind.GROUP]),
)

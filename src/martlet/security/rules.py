"""Access rules as Kafka names them: who, from where, may or must not do what, to which resource.

Codes are the protocol's. Rules here are data; which of them decides is in `rule_table.py`.

Proved by: tests/unit/security/test_rules.py
"""

from collections.abc import Iterable
from enum import IntEnum
from typing import Final, NamedTuple

ANY_NAME: Final = "*"
ANY_HOST: Final = "*"
ANY_USER: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The one resource of the kind CLUSTER."""


class ResourceKind(IntEnum):
    """What is protected."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


class PatternKind(IntEnum):
    """How a rule names resources."""

    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done to a resource."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    """What a rule says."""

    DENY = 2
    ALLOW = 3


class Pattern(NamedTuple):
    """A resource, or all whose names begin alike."""

    kind: ResourceKind
    match: PatternKind
    name: str

    def covers(self, name: str) -> bool:
        """Whether a resource of this name, and of the kind, is meant."""
        if self.match is PatternKind.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)


class Rule(NamedTuple):
    """One access rule."""

    pattern: Pattern
    principal: str
    """`User:name`, or `User:*` for everybody."""
    host: str
    """An address as text, or `*`."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        kind, match, name = self.pattern
        what = f"{kind.name.lower()} {name!r}" if match is PatternKind.LITERAL else f"{kind.name.lower()} {name!r}…"
        verb = "may" if self.permission is Permission.ALLOW else "must not"
        return f"{self.principal} from {self.host} {verb} {self.operation.name} {what}"


_IMPLIED: Final = {
    Operation.READ: (Operation.DESCRIBE,),
    Operation.WRITE: (Operation.DESCRIBE,),
    Operation.DELETE: (Operation.DESCRIBE,),
    Operation.ALTER: (Operation.DESCRIBE,),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
}
"""What is allowed along with an operation; a denial implies nothing."""

_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
OPERATIONS_OF: Final = {
    ResourceKind.TOPIC: (
        *(Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE),
        *_CONFIGS,
    ),
    ResourceKind.GROUP: (Operation.READ, Operation.DELETE, Operation.DESCRIBE, *_CONFIGS),
    ResourceKind.CLUSTER: (
        *(Operation.CREATE, Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION),
        *(Operation.IDEMPOTENT_WRITE, *_CONFIGS),
    ),
    ResourceKind.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
"""The operations that mean something for a kind of resource; ALL may be given for each."""


def bits_of(operations: Iterable[Operation]) -> int:
    """Operations as `authorized_operations` carries them: a bit for each code."""
    bits = 0
    for operation in operations:
        bits |= 1 << operation
    return bits


_ALL_BITS: Final = bits_of(Operation)


def allowed_bits(operation: Operation) -> int:
    """What a rule that allows the operation allows."""
    if operation is Operation.ALL:
        return _ALL_BITS
    return bits_of((operation, *_IMPLIED.get(operation, ())))


def denied_bits(operation: Operation) -> int:
    """What a rule that denies the operation denies."""
    return _ALL_BITS if operation is Operation.ALL else 1 << operation


def check_rule(rule: Rule) -> None:
    """Raise ValueError with a sentence for a rule that cannot be."""
    kind, match, name = rule.pattern
    if not name:
        raise ValueError("the resource has no name; '*' means all of its kind")
    if kind is ResourceKind.CLUSTER and (match, name) != (PatternKind.LITERAL, CLUSTER_NAME):
        raise ValueError(f"the cluster is named {CLUSTER_NAME!r}, literally")
    possible = OPERATIONS_OF[kind]
    if rule.operation is not Operation.ALL and rule.operation not in possible:
        words = ", ".join(operation.name for operation in (Operation.ALL, *possible))
        raise ValueError(f"{rule.operation.name} means nothing for a {kind.name}; allowed are {words}")
    user_kind, separator, user = rule.principal.partition(":")
    if user_kind != "User" or not separator or not user:
        raise ValueError(f"{rule.principal!r} is no principal; write User:NAME, or {ANY_USER} for everybody")
    if not rule.host:
        raise ValueError("the rule names no host; '*' means every host")


class RuleFilter(NamedTuple):
    """Which rules are meant by a request that lists or deletes; None lets all pass."""

    kind: ResourceKind | None = None
    match: PatternKind | None = None
    name: str | None = None
    finds_covering: bool = False
    """Whether all rules that concern a resource of `name` are meant, and not only those that name it so."""
    principal: str | None = None
    host: str | None = None
    operation: Operation | None = None
    permission: Permission | None = None

    def takes(self, rule: Rule) -> bool:
        """Whether the rule is one of those meant."""
        return (
            self.kind in (None, rule.pattern.kind)
            and self._takes_name(rule.pattern)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (None, rule.operation)
            and self.permission in (None, rule.permission)
        )

    def _takes_name(self, pattern: Pattern) -> bool:
        if self.match not in (None, pattern.match):
            return False
        if self.name is None:
            return True
        return pattern.covers(self.name) if self.finds_covering else pattern.name == self.name

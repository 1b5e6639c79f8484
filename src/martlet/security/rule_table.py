"""The rules in force, ordered so that one question looks at few of them.

For each principal and kind of resource: its literal names, its prefixes by length, and what is allowed and denied there
by host. A question walks the names that cover a resource, so its time depends on the number of different prefix
lengths, not on the number of rules. `explain` walks the same way and keeps the rules it meets.

Invariants: ACL-1 denied beats allowed, whatever is more specific; ACL-2 without a rule that allows, nothing is allowed;
ACL-3 a batch of changes is in force as a whole or not at all: `apply` returns before anything else is asked.

Proved by: tests/unit/security/test_rule_table.py (against a linear scan of all rules)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from martlet.security.rules import (
    ANY_HOST,
    ANY_NAME,
    ANY_USER,
    Operation,
    PatternKind,
    Permission,
    ResourceKind,
    Rule,
    allowed_bits,
    denied_bits,
)


@dataclass(slots=True)
class _Said:
    """What is said for one host about one pattern."""

    allowed: int = 0
    denied: int = 0
    rules: list[Rule] = field(default_factory=list)


@dataclass(slots=True)
class _Book:
    """What is said about one principal and one kind of resource."""

    rules: set[Rule] = field(default_factory=set)
    literals: dict[str, dict[str, _Said]] = field(default_factory=dict)
    prefixes: dict[str, dict[str, _Said]] = field(default_factory=dict)
    lengths: tuple[int, ...] = ()

    def add(self, rule: Rule) -> None:
        if rule in self.rules:
            return
        self.rules.add(rule)
        self._index(rule)

    def remove(self, rules: set[Rule]) -> None:
        self.rules -= rules
        self.literals, self.prefixes, self.lengths = {}, {}, ()
        for rule in self.rules:
            self._index(rule)

    def _index(self, rule: Rule) -> None:
        name = rule.pattern.name
        is_literal = rule.pattern.match is PatternKind.LITERAL
        if not is_literal and len(name) not in self.lengths:
            self.lengths = tuple(sorted((*self.lengths, len(name))))
        said = (self.literals if is_literal else self.prefixes).setdefault(name, {}).setdefault(rule.host, _Said())
        said.rules.append(rule)
        if rule.permission is Permission.ALLOW:
            said.allowed |= allowed_bits(rule.operation)
        else:
            said.denied |= denied_bits(rule.operation)

    def covering(self, name: str) -> Iterator[dict[str, _Said]]:
        literals, prefixes = self.literals, self.prefixes
        if (found := literals.get(name)) is not None:
            yield found
        if name != ANY_NAME and (found := literals.get(ANY_NAME)) is not None:
            yield found
        for length in self.lengths:
            if length > len(name):
                break
            if (found := prefixes.get(name[:length])) is not None:
                yield found


class RuleTable:
    """Lives on one event loop; `generation` counts the changes."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._books: dict[tuple[str, ResourceKind], _Book] = {}
        self.generation = 0
        self.apply((), rules)

    def __len__(self) -> int:
        return sum(len(book.rules) for book in self._books.values())

    def __iter__(self) -> Iterator[Rule]:
        for book in self._books.values():
            yield from book.rules

    def apply(self, removed: Iterable[Rule], added: Iterable[Rule]) -> None:
        """Take over one change of the rules."""
        gone: dict[tuple[str, ResourceKind], set[Rule]] = {}
        for rule in removed:
            gone.setdefault((rule.principal, rule.pattern.kind), set()).add(rule)
        for key, rules in gone.items():
            if (book := self._books.get(key)) is not None:
                book.remove(rules)
        for rule in added:
            self._books.setdefault((rule.principal, rule.pattern.kind), _Book()).add(rule)
        for key in gone:
            if key in self._books and not self._books[key].rules:
                del self._books[key]
        self.generation += 1

    def bits(self, principal: str, host: str, kind: ResourceKind, name: str) -> int:
        """All that the principal may do to this resource, a bit for each operation."""
        allowed = denied = 0
        for said in self._about(principal, host, kind, name):
            allowed |= said.allowed
            denied |= said.denied
        return allowed & ~denied

    def explain(
        self, principal: str, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> tuple[bool, tuple[Rule, ...]]:
        """Whether the operation is allowed, and by which rules it is so."""
        bit = 1 << operation
        allowing: list[Rule] = []
        denying: list[Rule] = []
        for said in self._about(principal, host, kind, name):
            for rule in said.rules:
                if rule.permission is Permission.ALLOW and allowed_bits(rule.operation) & bit:
                    allowing.append(rule)
                elif rule.permission is Permission.DENY and denied_bits(rule.operation) & bit:
                    denying.append(rule)
        if denying:
            return False, tuple(sorted(denying))
        return bool(allowing), tuple(sorted(allowing))

    def may_somewhere(self, principal: str, host: str, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there can be a resource of the kind, existing or not, for which the operation is allowed."""
        bit = 1 << operation
        allowed: list[Rule] = []
        denied: list[Rule] = []
        for one in (principal, ANY_USER):
            book = self._books.get((one, kind))
            for rule in book.rules if book is not None else ():
                if rule.host in (host, ANY_HOST):
                    if rule.permission is Permission.ALLOW and allowed_bits(rule.operation) & bit:
                        allowed.append(rule)
                    elif rule.permission is Permission.DENY and denied_bits(rule.operation) & bit:
                        denied.append(rule)
        return any(not any(_dominates(denial, rule) for denial in denied) for rule in allowed)

    def _about(self, principal: str, host: str, kind: ResourceKind, name: str) -> Iterator[_Said]:
        for one in (principal, ANY_USER):
            book = self._books.get((one, kind))
            if book is not None:
                for by_host in book.covering(name):
                    if (said := by_host.get(host)) is not None:
                        yield said
                    if (said := by_host.get(ANY_HOST)) is not None:
                        yield said


def _dominates(denial: Rule, rule: Rule) -> bool:
    """Whether the denial covers all that the other rule covers."""
    literal = PatternKind.LITERAL
    if denial.pattern.match is literal and denial.pattern.name == ANY_NAME:
        return True
    if rule.pattern.match is literal and rule.pattern.name == ANY_NAME:
        return False
    if denial.pattern.match is literal:
        return rule.pattern == denial.pattern
    return rule.pattern.name.startswith(denial.pattern.name)

"""Decides every request of every door: one rule table, one set of super users, one question.

A connection asks through a `Viewer` of its own, which remembers answers until the rules change. While rules are not
known yet, only super users may do anything.

Invariant: ACL-4 what a viewer remembers is never older than the last change of the rules.

Proved by: tests/unit/security/test_authorizer.py
"""

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from martlet.base.principals import Principal
from martlet.security.rule_table import RuleTable
from martlet.security.rules import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceKind, Rule, bits_of

_REMEMBERED_MAX: Final = 4_096
_EVERYTHING: Final = bits_of(Operation)


@dataclass(frozen=True, slots=True)
class Decision:
    """An answer with its reason."""

    allowed: bool
    reason: str


class Authorizer:
    """Owned by the broker."""

    def __init__(self, super_users: Iterable[str] = (), table: RuleTable | None = None) -> None:
        """`super_users` are principals like `User:admin`; they may do everything, whatever the rules say."""
        self._super_users = frozenset(super_users)
        self.table = table if table is not None else RuleTable()

    def is_super_user(self, principal: Principal) -> bool:
        """Whether rules do not concern this principal."""
        return str(principal) in self._super_users

    def viewer(self, principal: Principal, host: str) -> "Viewer":
        """The questions of one client."""
        return Viewer(self.table, str(principal), plain_host(host), is_super_user=self.is_super_user(principal))

    def explain(self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str) -> Decision:
        """The answer to a question and the rules by which it is so."""
        if self.is_super_user(principal):
            return Decision(True, f"{principal} is a super user")
        allowed, rules = self.table.explain(str(principal), plain_host(host), operation, kind, name)
        return Decision(allowed, _reason(allowed, rules))


class Viewer:
    """One client's view of what it may do; what it asks often costs a look into a dictionary."""

    __slots__ = ("_bits", "_generation", "_host", "_principal", "_table", "is_super_user")

    def __init__(self, table: RuleTable, principal: str, host: str, *, is_super_user: bool) -> None:
        self._table = table
        self._principal = principal
        self._host = host
        self.is_super_user = is_super_user
        self._generation = table.generation
        self._bits: dict[tuple[ResourceKind, str], int] = {}

    def may(self, operation: Operation, kind: ResourceKind, name: str) -> bool:
        """Whether the client may do this."""
        return bool(self.operations(kind, name) >> operation & 1)

    def may_on_cluster(self, operation: Operation) -> bool:
        """Whether the client may do this to the cluster as a whole."""
        return self.may(operation, ResourceKind.CLUSTER, CLUSTER_NAME)

    def may_somewhere(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether the client may do this to some resource of the kind, existing or not."""
        if self.is_super_user:
            return True
        return self._table.may_somewhere(self._principal, self._host, operation, kind)

    def operations(self, kind: ResourceKind, name: str) -> int:
        """All that the client may do, a bit for each operation."""
        if self.is_super_user:
            return _EVERYTHING
        if self._generation != self._table.generation:
            self._bits.clear()
            self._generation = self._table.generation
        key = kind, name
        bits = self._bits.get(key)
        if bits is None:
            if len(self._bits) >= _REMEMBERED_MAX:
                self._bits.clear()
            bits = self._bits[key] = self._table.bits(self._principal, self._host, kind, name)
        return bits

    def authorized_operations(self, kind: ResourceKind, name: str) -> int:
        """The same as a response names it: only what means something for the kind."""
        return self.operations(kind, name) & bits_of(OPERATIONS_OF[kind])


def plain_host(host: str) -> str:
    """One text for one address: IPv6 in its short form, IPv4 in IPv6 unwrapped, no zone."""
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def _reason(allowed: bool, rules: Iterable[Rule]) -> str:
    said = "; ".join(str(rule) for rule in rules)
    if said:
        return said
    return "no rule concerns it" if allowed else "no rule allows it"

"""Changes the access rules in the metadata store: several rules at once take effect together.

Proved by: tests/broker/test_access_rules.py
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Final

from martlet.broker.access.access_rules import read_rules, write_pattern, write_rule
from martlet.broker.membership.metadata_changes import MetadataChanges
from martlet.cluster.records import AccessRecord
from martlet.cluster.security_decisions import plan_access
from martlet.cluster.store import COMMIT_OPERATIONS_MAX, CommitPlan
from martlet.security.rules import Pattern, Rule

_PATTERNS_MAX: Final = COMMIT_OPERATIONS_MAX


class RuleAdmin:
    """Safe to call from many tasks of one event loop."""

    def __init__(self, changes: MetadataChanges) -> None:
        self._changes = changes
        self._image = changes.image

    def rules(self) -> list[Rule]:
        """All rules, in their order."""
        return sorted(rule for record in self._image.access_records().values() for rule in read_rules(record))

    async def add(self, rules: Sequence[Rule]) -> None:
        """Have these rules in force from now on."""
        await self._change(rules, lambda stored, named: stored | named)

    async def remove(self, rules: Sequence[Rule]) -> None:
        """Have these rules in force no longer."""
        await self._change(rules, lambda stored, named: stored - named)

    async def _change(self, rules: Sequence[Rule], merge: Callable[[set[Rule], set[Rule]], set[Rule]]) -> None:
        by_pattern: dict[Pattern, set[Rule]] = {}
        for rule in rules:
            by_pattern.setdefault(rule.pattern, set()).add(rule)
        waiting = iter(by_pattern)
        # A commit holds a limited number of keys; more patterns than that are rare and change in several steps.
        while patterns := list(islice(waiting, _PATTERNS_MAX)):
            await self._changes.execute(partial(self._plan, patterns, by_pattern, merge))

    def _plan(
        self,
        patterns: Iterable[Pattern],
        named: dict[Pattern, set[Rule]],
        merge: Callable[[set[Rule], set[Rule]], set[Rule]],
    ) -> CommitPlan | None:
        changes = []
        for pattern in patterns:
            key = write_pattern(pattern)
            stored = self._image.access_records().get(key) or AccessRecord(key)
            before = set(read_rules(stored))
            after = merge(before, named[pattern])
            if after != before:
                changes.append((stored, [write_rule(rule) for rule in after]))
        return plan_access(changes) if changes else None

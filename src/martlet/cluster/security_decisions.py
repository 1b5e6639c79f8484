"""What to commit when users, access rules or quotas change; pure, decided again when another commit was faster.

Proved by: tests/unit/cluster/test_security_decisions.py
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from martlet.cluster.keys import access_key, quota_key, user_key
from martlet.cluster.records import AccessRecord, AccessRule, QuotaRecord, UserRecord, encode_record
from martlet.cluster.store import CommitPlan


def plan_user(stored: UserRecord, changed: UserRecord) -> CommitPlan:
    """Give a user these credentials; one without any is gone."""
    key = user_key(stored.name)
    compares = {key: stored.mod_revision}
    if not changed.credentials:
        return CommitPlan(compares, deletes=(key,))
    return CommitPlan(compares, {key: encode_record(changed)})


def plan_quota(stored: QuotaRecord, limits: Mapping[str, float]) -> CommitPlan:
    """Give an entity these quotas; without any it leaves nothing behind."""
    key = quota_key(stored.entity)
    compares = {key: stored.mod_revision}
    if not limits:
        return CommitPlan(compares, deletes=(key,))
    return CommitPlan(compares, {key: encode_record(replace(stored, limits=limits))})


def plan_access(changes: Iterable[tuple[AccessRecord, Iterable[AccessRule]]]) -> CommitPlan:
    """Give resource patterns these rules, all at once or not at all; a pattern without rules leaves nothing behind."""
    compares: dict[str, int] = {}
    puts: dict[str, bytes] = {}
    deletes: list[str] = []
    for stored, rules in changes:
        key = access_key(*stored.pattern)
        compares[key] = stored.mod_revision
        ordered = tuple(sorted(rules))
        if ordered:
            puts[key] = encode_record(replace(stored, rules=ordered))
        else:
            deletes.append(key)
    return CommitPlan(compares, puts, tuple(deletes))

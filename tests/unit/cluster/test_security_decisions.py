"""Changes of users, access rules and quotas: stored under their keys, seen by the image, gone when they are empty."""

from martlet.cluster.keys import QuotaEntity
from martlet.cluster.records import AccessRecord, AccessRule, QuotaRecord, StoredCredential, UserRecord
from martlet.cluster.security_decisions import plan_access, plan_quota, plan_user
from tests.unit.cluster.images import FollowedStore

CREDENTIAL = StoredCredential("c2FsdA==", 8192, "a2V5", "a2V5")
PAYMENTS = ("topic", "literal", "payments")
READ = AccessRule("User:alice", "*", "read", "allow")
WRITE = AccessRule("User:alice", "*", "write", "allow")


def test_a_user_is_stored_changed_and_gone_with_the_last_credential() -> None:
    store = FollowedStore()
    delta = store.commit(plan_user(UserRecord("alice"), UserRecord("alice", {"SCRAM-SHA-512": CREDENTIAL})))
    assert delta.users == ("alice",)
    assert delta.has_changes
    stored = store.image.users()["alice"]
    assert stored.credentials == {"SCRAM-SHA-512": CREDENTIAL}
    assert store.commit(plan_user(stored, UserRecord("alice"))).users == ("alice",)
    assert "alice" not in store.image.users()


def test_rules_of_several_resources_change_in_one_step() -> None:
    store = FollowedStore()
    group = ("group", "prefixed", "team-")
    delta = store.commit(plan_access([(AccessRecord(PAYMENTS), [WRITE, READ]), (AccessRecord(group), [READ])]))
    assert {change.after.pattern for change in delta.access if change.after is not None} == {PAYMENTS, group}
    assert store.image.access_records()[PAYMENTS].rules == (READ, WRITE)
    stored = store.image.access_records()[PAYMENTS]
    (change,) = store.commit(plan_access([(stored, [])])).access
    assert change.before is not None
    assert (change.before.rules, change.after) == ((READ, WRITE), None)
    assert set(store.image.access_records()) == {group}


def test_a_quota_is_stored_changed_and_gone_with_the_last_limit() -> None:
    store = FollowedStore()
    entity = QuotaEntity("alice", "")
    assert store.commit(plan_quota(QuotaRecord(entity), {"producer_byte_rate": 1e6})).quotas == (entity,)
    stored = store.image.quotas()[entity]
    assert stored.limits == {"producer_byte_rate": 1e6}
    store.commit(plan_quota(stored, {}))
    assert store.image.quotas() == {}

"""The credentials clients are checked against: stored ones, that of brokers, and decoys."""

from martlet.base.secret import Secret
from martlet.broker.access.users import BROKER_MECHANISM, BROKER_USER, Users, read_credential, write_credential
from martlet.cluster.keys import CLUSTER_KEY, user_key
from martlet.cluster.records import ClusterRecord, UserRecord, encode_record
from martlet.cluster.store import CommitPlan
from martlet.security.scram import ScramMechanism, credential_of, is_password_of
from tests.unit.cluster.images import FollowedStore

SHA_256 = ScramMechanism.SHA_256


def store_with(secret: str, *users: str) -> FollowedStore:
    store = FollowedStore()
    stored = write_credential(credential_of(SHA_256, Secret("wonderland"), b"salt", 4096))
    puts = {user_key(name): encode_record(UserRecord(name, {"SCRAM-SHA-256": stored})) for name in users}
    store.commit(CommitPlan(puts={CLUSTER_KEY: encode_record(ClusterRecord("id", 1, secret)), **puts}))
    return store


def test_a_stored_credential_still_knows_its_password() -> None:
    users = Users(store_with("secret", "alice").image)
    found = users.of("alice")
    assert is_password_of(SHA_256, found[SHA_256], Secret("wonderland"))
    assert users.of("bob") == {}
    assert read_credential(write_credential(found[SHA_256])) == found[SHA_256]


def test_the_user_of_brokers_has_the_clusters_secret_and_only_where_brokers_come() -> None:
    store = store_with("first secret")
    users = Users(store.image)
    (credential,) = users.lookup(with_brokers=True)(BROKER_USER).values()
    assert is_password_of(BROKER_MECHANISM, credential, Secret("first secret"))
    assert users.lookup(with_brokers=False)(BROKER_USER) == {}
    store.commit(CommitPlan(puts={CLUSTER_KEY: encode_record(ClusterRecord("id", 1, "second secret"))}))
    (credential,) = users.lookup(with_brokers=True)(BROKER_USER).values()
    assert is_password_of(BROKER_MECHANISM, credential, Secret("second secret"))


def test_without_a_secret_of_the_cluster_there_is_no_user_of_brokers() -> None:
    assert Users(store_with("").image).lookup(with_brokers=True)(BROKER_USER) == {}


def test_decoys_are_the_same_on_every_broker_of_a_cluster_and_differ_between_clusters() -> None:
    decoys = [Users(store_with(secret).image).decoys().credential(SHA_256, "eve") for secret in ("one", "one", "two")]
    assert decoys[0] == decoys[1] != decoys[2]

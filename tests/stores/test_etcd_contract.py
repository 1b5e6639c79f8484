"""The contract of every metadata store, held against a real etcd: the tests are those of tests/unit/stores."""

from tests.unit.stores.test_store_contract import *  # noqa: F403

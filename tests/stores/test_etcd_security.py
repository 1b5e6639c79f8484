"""A real etcd that demands certificates, or user and password."""

import asyncio
from base64 import b64encode
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from martlet.cluster.store import MetaStore, StoreError, StoreRefused, StoreUnavailable
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_options import EtcdOptions, EtcdTls
from tests.stores.certificates import Authority
from tests.stores.etcd_process import EtcdProcess

_PASSWORD = "correct horse"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls_etcd(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EtcdProcess]:
    with EtcdProcess(tmp_path_factory.mktemp("etcd-tls"), tls=authority.server()) as process:
        yield process


@pytest.fixture
def guarded_etcd(tmp_path: Path) -> Iterator[EtcdProcess]:
    """Authentication on; the user `broker` may use the prefix /test/, and its tokens live for two seconds."""
    with EtcdProcess(tmp_path / "etcd", flags=["--auth-token-ttl", "2"]) as process:
        process.call("/v3/auth/user/add", {"name": "root", "password": "r"})
        process.call("/v3/auth/user/grant", {"user": "root", "role": "root"})
        process.call("/v3/auth/role/add", {"name": "martlet"})
        begin, end = b64encode(b"/test/").decode(), b64encode(b"/test0").decode()
        permission = {"permType": "READWRITE", "key": begin, "range_end": end}
        process.call("/v3/auth/role/grant", {"name": "martlet", "perm": permission})
        process.call("/v3/auth/user/add", {"name": "broker", "password": _PASSWORD})
        process.call("/v3/auth/user/grant", {"user": "broker", "role": "martlet"})
        process.call("/v3/auth/enable", {})
        yield process


def _as_root(etcd: EtcdProcess) -> str:
    return str(etcd.call("/v3/auth/authenticate", {"name": "root", "password": "r"})["token"])


async def _use(store: MetaStore) -> None:
    """Every kind of call, once."""
    try:
        result = await store.commit({"a": 0}, {"a": b"1"})
        assert result.succeeded
        assert len((await store.list("")).entries) == 1
        async with aclosing(store.watch("", result.revision - 1)) as changes:
            assert (await anext(changes)).revision == result.revision
        lease = await store.grant(1_000)
        await store.keep_alive(lease)
        await store.revoke(lease)
        await store.commit({}, {}, ["a"])
    finally:
        await store.close()


async def _refusal(options: EtcdOptions) -> str:
    with pytest.raises(StoreRefused) as caught:
        await EtcdStore.open(options)
    return str(caught.value)


async def test_all_calls_work_over_tls_with_client_certificates(tls_etcd: EtcdProcess, authority: Authority) -> None:
    await _use(await EtcdStore.open(EtcdOptions(tls_etcd.address(), tls=authority.client())))


async def test_plain_speech_to_a_tls_port_gets_a_hint(tls_etcd: EtcdProcess) -> None:
    with pytest.raises(StoreUnavailable, match=rf"{tls_etcd.endpoint}: .*does this address speak TLS\?"):
        await EtcdStore.open(EtcdOptions(tls_etcd.address()))


async def test_tls_to_a_plain_port_gets_a_hint(etcd: EtcdProcess, authority: Authority) -> None:
    with pytest.raises(StoreError, match=rf"{etcd.endpoint}: .*does this address speak TLS\?"):
        await EtcdStore.open(EtcdOptions(etcd.address(), tls=authority.client()))


async def test_a_server_of_an_unknown_authority_is_refused(tls_etcd: EtcdProcess, tmp_path: Path) -> None:
    stranger = Authority(tmp_path)
    message = await _refusal(EtcdOptions(tls_etcd.address(), tls=EtcdTls(stranger.ca_file)))
    assert "its certificate is not to be trusted" in message


async def test_a_missing_client_certificate_is_explained(tls_etcd: EtcdProcess, authority: Authority) -> None:
    message = await _refusal(EtcdOptions(tls_etcd.address(), tls=EtcdTls(authority.ca_file)))
    assert "it refuses our certificate, or wants one" in message


async def test_all_calls_work_with_user_and_password(guarded_etcd: EtcdProcess) -> None:
    await _use(await EtcdStore.open(EtcdOptions(guarded_etcd.address(), user="broker", password=_PASSWORD)))


async def test_wrong_credentials_are_told_apart_from_missing_ones(guarded_etcd: EtcdProcess) -> None:
    address = guarded_etcd.address()
    wrong = await _refusal(EtcdOptions(address, user="broker", password="wrong"))
    assert f"etcd at {guarded_etcd.endpoint}, user broker: authentication failed" in wrong
    assert "check the user and the password" in wrong
    missing = await _refusal(EtcdOptions(address))
    assert "it asks for user and password, and none were given" in missing
    elsewhere = await _refusal(EtcdOptions(guarded_etcd.address("other"), user="broker", password=_PASSWORD))
    assert "permission denied; the user needs a role" in elsewhere


async def test_a_token_that_etcd_forgot_is_renewed(guarded_etcd: EtcdProcess) -> None:
    store = await EtcdStore.open(EtcdOptions(guarded_etcd.address(), user="broker", password=_PASSWORD))
    await guarded_etcd.restart()
    assert await store.get("a") is None
    await guarded_etcd.restart()
    await store.close()


async def test_a_watch_whose_token_etcd_forgot_gets_a_new_one(guarded_etcd: EtcdProcess) -> None:
    """etcd takes such a watch back without giving a reason."""
    store = await EtcdStore.open(EtcdOptions(guarded_etcd.address(), user="broker", password=_PASSWORD))
    await guarded_etcd.restart()
    message: dict[str, object] = {"key": b64encode(b"/test/a").decode(), "value": ""}
    guarded_etcd.call("/v3/kv/put", message, _as_root(guarded_etcd))
    async with asyncio.timeout(20), aclosing(store.watch("", 1)) as changes:
        assert [event.key for event in (await anext(changes)).events] == ["a"]
    await store.close()


async def test_a_password_changed_under_a_running_store_is_reported(guarded_etcd: EtcdProcess) -> None:
    store = await EtcdStore.open(EtcdOptions(guarded_etcd.address(), user="broker", password=_PASSWORD))
    root = _as_root(guarded_etcd)
    guarded_etcd.call("/v3/auth/user/changepw", {"name": "broker", "password": "new"}, root)
    with pytest.raises(StoreRefused, match="check the user and the password"):
        await store.commit({}, {"a": b""})
    await store.close()


async def test_rights_taken_away_end_a_watch_with_the_reason(guarded_etcd: EtcdProcess) -> None:
    store = await EtcdStore.open(EtcdOptions(guarded_etcd.address(), user="broker", password=_PASSWORD))
    root = _as_root(guarded_etcd)
    guarded_etcd.call("/v3/auth/user/revoke", {"name": "broker", "role": "martlet"}, root)
    with pytest.raises(StoreRefused, match="permission denied"):
        await anext(store.watch("", 1))
    await store.close()


async def test_a_user_given_to_an_etcd_without_authentication_does_no_harm(etcd: EtcdProcess) -> None:
    await _use(await EtcdStore.open(EtcdOptions(etcd.address("unasked"), user="broker", password="any")))

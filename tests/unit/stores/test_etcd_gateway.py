"""What the etcd client makes of every answer: of a server that lies, falls silent, hangs up or is not etcd at all."""

import asyncio

import pytest

from martlet.base.errors import InvariantViolation
from martlet.cluster.store import (
    LeaseId,
    LeaseLost,
    StoreError,
    StoreRefused,
    StoreReplaced,
    StoreUnavailable,
    UnknownOutcome,
)
from martlet.stores.etcd import EtcdStore
from martlet.stores.etcd_gateway import TXN
from martlet.stores.etcd_options import EtcdAddress, EtcdEndpoint, EtcdOptions
from tests.unit.stores.scripted_server import (
    HANG_UP,
    QUICK,
    SILENCE,
    Answer,
    Raw,
    ScriptedServer,
    Seen,
    fault,
    header,
    ok,
    opened,
    script,
)


async def _refusal(server: ScriptedServer) -> str:
    async with server:
        with pytest.raises(StoreRefused) as caught:
            await EtcdStore.open(server.options())
        assert str(server.endpoint) in str(caught.value)
        return str(caught.value)


# --- at the start


@pytest.mark.parametrize("version", ["3.3.27", "2.3.8", "3.5.0", "3.5.1", "3.5.2"])
async def test_versions_that_cannot_be_relied_on_are_refused(version: str) -> None:
    message = await _refusal(ScriptedServer(lambda _: ok(), (200, {"etcdserver": version})))
    assert version in message
    assert "3.5.0 to 3.5.2 can lose or contradict" in message or "needs 3.4 or newer" in message


@pytest.mark.parametrize("version", ["3.4.0", "3.4.23", "3.5.3", "3.6.9", "3.6.0-rc.1", "3.7.1", "4.0.0"])
async def test_other_versions_are_served(version: str) -> None:
    async with opened(ScriptedServer(lambda _: ok(), (200, {"etcdserver": version}))) as store:
        assert await store.get("a") is None


@pytest.mark.parametrize("body", [{}, {"etcdserver": "new"}, b"<html>", b"[]", b"\xff", b"[" * 100_000])
async def test_a_web_server_that_is_not_etcd_is_refused(body: object) -> None:
    assert "is not etcd" in await _refusal(ScriptedServer(lambda _: ok(), (200, body)))
    assert "is not etcd" in await _refusal(ScriptedServer(lambda _: ok(), (404, body)))


async def test_something_that_speaks_no_http_is_refused() -> None:
    message = await _refusal(
        ScriptedServer(lambda _: ok(), Raw(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00", then_close=False))
    )
    assert "is not etcd's HTTP port" in message
    assert "--listen-client-http-urls" in message


async def test_a_server_that_asks_for_tls_in_words_is_understood() -> None:
    answer = (400, b"Client sent an HTTP request to an HTTPS server.\n")
    assert "speaks TLS; give the broker" in await _refusal(ScriptedServer(lambda _: ok(), answer))


async def test_an_unreachable_etcd_is_named_with_what_to_check() -> None:
    server = ScriptedServer(lambda _: ok(), SILENCE)
    async with server:
        with pytest.raises(StoreUnavailable) as caught:
            await EtcdStore.open(server.options())
        assert f"{server.endpoint}: no answer within {QUICK.connect_seconds:g} s; check that etcd runs" in str(
            caught.value
        )
        endpoint = server.endpoint
    with pytest.raises(StoreUnavailable, match=rf"{endpoint}: .*refused|{endpoint}: Connect call failed"):
        await EtcdStore.open(EtcdOptions(EtcdAddress((endpoint,), "/test/"), limits=QUICK))


async def test_a_name_that_does_not_exist_is_named() -> None:
    address = EtcdAddress((EtcdEndpoint("no-such-host.invalid", 2379),), "/test/")
    with pytest.raises(StoreUnavailable, match=r"no-such-host\.invalid:2379"):
        await EtcdStore.open(EtcdOptions(address, limits=QUICK))


async def test_members_of_two_clusters_are_refused_at_the_start() -> None:
    async with ScriptedServer(lambda _: ok(cluster=8)) as other, ScriptedServer(lambda _: ok()) as server:
        with pytest.raises(StoreReplaced, match="belongs to cluster"):
            await EtcdStore.open(server.options(other.endpoint))


# --- writes


@pytest.mark.parametrize(
    "answer",
    [
        SILENCE,
        HANG_UP,
        Raw(b"HTTP/1.1 200 X\r\nContent-Length: 100\r\n\r\n{"),
        Raw(b"SSH-2.0-x\r\n"),
        (200, b"no json"),
        (200, {"succeeded": True}),
        (200, {"header": {"cluster_id": "x"}}),
        (502, b"Bad Gateway"),
        fault(14, "etcdserver: request timed out", 503),
        fault(14, "etcdserver: leader changed", 503),
        fault(4, "context deadline exceeded", 504),
        fault(2, "surprise", 500),
        fault(8, "etcdserver: mvcc: database space exceeded", 429),
    ],
)
async def test_sto_7_a_commit_without_a_clear_answer_is_unknown_and_sent_once(answer: Answer) -> None:
    server = script(txn=answer)
    async with ScriptedServer(lambda _: ok()) as other, opened(server, other.endpoint) as store:
        with pytest.raises(UnknownOutcome, match=str(server.endpoint)):
            await store.commit({}, {"a": b""})
        assert (server.paths() + other.paths()).count(TXN) == 1
        # The other member is asked next; the one that failed may be sick.
        assert (await store.commit({}, {"a": b""})).revision == 1
        assert other.paths()[-1] == TXN


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (fault(5, "etcdserver: requested lease not found", 404), LeaseLost),
        (fault(7, "etcdserver: permission denied", 403), StoreRefused),
        (fault(3, "etcdserver: too many operations in txn request"), StoreRefused),
        (fault(3, "etcdserver: request is too large"), StoreRefused),
        (fault(3, "etcdserver: user name is empty"), StoreRefused),
        (fault(15, "etcdserver: corrupt cluster", 500), StoreRefused),
        (fault(16, "etcdserver: invalid auth token", 401), StoreRefused),
        (fault(8, "etcdserver: too many requests", 429), StoreUnavailable),
        ((404, b"404 page not found\n"), StoreRefused),
    ],
)
async def test_a_commit_that_etcd_refused_did_not_happen(answer: Answer, error: type[StoreError]) -> None:
    async with opened(script(txn=answer)) as store:
        with pytest.raises(error):
            await store.commit({}, {"a": b""})


async def test_a_commit_too_large_is_refused_before_it_is_sent() -> None:
    server = script()
    async with opened(server) as store:
        with pytest.raises(InvariantViolation):
            await store.commit({}, {f"k{number}": b"" for number in range(129)})
        assert TXN not in server.paths()


async def test_a_commit_is_sent_to_the_next_member_when_nothing_was_sent_to_the_first() -> None:
    async with ScriptedServer(lambda _: ok()) as other:
        gone = ScriptedServer(lambda _: ok())
        async with gone:
            store = await EtcdStore.open(gone.options(other.endpoint))
        await asyncio.sleep(0.01)  # the server's end reaches the client
        assert (await store.commit({}, {"a": b""})).revision == 1
        assert other.paths().count(TXN) == 1
        await store.close()


async def test_a_commit_refused_as_busy_is_sent_to_the_next_member() -> None:
    server = script(txn=fault(8, "etcdserver: too many requests", 429))
    async with ScriptedServer(lambda _: ok(5, succeeded=True)) as other, opened(server, other.endpoint) as store:
        assert await store.commit({}, {"a": b""}) == (True, 5)


async def test_a_member_that_lost_its_gateway_is_passed_over() -> None:
    server = script()
    async with ScriptedServer(lambda _: ok(5, succeeded=True)) as other, opened(server, other.endpoint) as store:
        server.answer = lambda _: (404, b"404 page not found")
        assert await store.commit({}, {"a": b""}) == (True, 5)
        assert await store.get("a") is None


async def test_a_cancelled_call_does_not_leave_its_answer_to_the_next() -> None:
    server = script(txn=SILENCE)
    async with opened(server) as store:
        task = asyncio.create_task(store.commit({}, {"a": b""}))
        while TXN not in server.paths():
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled()
        server.answer = lambda _: ok(3)
        assert (await store.list("")).revision == 3


# --- reads


@pytest.mark.parametrize(
    "answer",
    [SILENCE, HANG_UP, (200, b"no json"), (503, b""), fault(14, "etcdserver: leader changed", 503), (200, {"kvs": []})],
)
async def test_a_read_goes_on_to_the_next_member(answer: Answer) -> None:
    server = script()
    async with ScriptedServer(lambda _: ok(2)) as other, opened(server, other.endpoint) as store:
        server.answer = lambda _: answer
        assert (await store.list("")).revision == 2


@pytest.mark.parametrize(
    "kvs", ["x", [7], [{"key": "!"}], [{"key": "YQ=="}], [{"key": "L3Rlc3QvYQ==", "mod_revision": "many"}]]
)
async def test_entries_that_make_no_sense_are_not_believed(kvs: object) -> None:
    server = script()
    async with opened(server) as store:
        server.answer = lambda _: ok(kvs=kvs)
        with pytest.raises(StoreUnavailable, match="makes no sense"):
            await store.list("")


async def test_a_read_over_a_connection_that_was_closed_meanwhile_is_made_again() -> None:
    server = script()
    async with opened(server) as store:
        answers = iter([HANG_UP, ok(4)])
        server.answer = lambda _: next(answers)
        assert (await store.list("")).revision == 4


async def test_connections_are_used_again() -> None:
    server = script()
    async with opened(server) as store:
        for _ in range(20):
            await store.get("a")
        assert server.connections == 1


# --- whose answers they are (STO-8)


async def test_sto_8_another_cluster_behind_the_address_ends_all_use() -> None:
    server = script()
    async with opened(server) as store:
        server.answer = lambda _: ok(cluster=8)
        with pytest.raises(StoreReplaced, match="belongs to cluster 8, not to 7"):
            await store.get("a")
        server.answer = lambda _: ok()
        with pytest.raises(StoreReplaced):
            await store.commit({}, {"a": b""})


async def test_sto_8_a_revision_that_goes_back_ends_all_use() -> None:
    server = script()
    async with opened(server) as store:
        server.answer = lambda _: ok(9)
        await store.get("a")
        server.answer = lambda _: ok(8)
        for _ in range(2):
            with pytest.raises(StoreReplaced, match="is at revision 8 but was at 9: it was restored from a backup"):
                await store.get("a")


async def test_one_read_from_the_past_is_forgiven() -> None:
    server = script()
    async with opened(server) as store:
        answers = iter([ok(9), ok(8), ok(9)])
        server.answer = lambda _: next(answers)
        await store.get("a")
        await store.get("a")


# --- tokens


def _guarded(valid: list[str], fetched: list[str]) -> ScriptedServer:
    """Takes calls with the token in `valid`; gives out t1, t2, …"""

    def answer(seen: Seen) -> Answer:
        if seen.path == "/v3/auth/authenticate":
            if seen.message != {"name": "u", "password": "p"}:
                return fault(3, "etcdserver: authentication failed, invalid user ID or password")
            fetched.append(f"t{len(fetched) + 1}")
            valid[:] = fetched[-1:]
            return ok(token=fetched[-1])
        if seen.headers.get("authorization") in valid:
            return ok(succeeded=True)
        return fault(16, "etcdserver: invalid auth token", 401)

    return ScriptedServer(answer)


async def test_a_token_is_fetched_once_and_again_when_it_is_no_longer_taken() -> None:
    valid: list[str] = []
    fetched: list[str] = []
    async with _guarded(valid, fetched) as server:
        store = await EtcdStore.open(server.options(user="u", password="p"))
        await asyncio.gather(*(store.get("a") for _ in range(10)))
        assert fetched == ["t1"]
        valid.clear()
        results = await asyncio.gather(*(store.commit({}, {"a": b""}) for _ in range(10)))
        assert all(result.succeeded for result in results)
        assert fetched == ["t1", "t2"]
        await store.close()


async def test_a_password_is_never_sent_where_it_can_be_seen() -> None:
    options = EtcdOptions(EtcdAddress((EtcdEndpoint("h", 1),), "/t/"), user="u", password="secret")
    assert "secret" not in repr(options)
    async with _guarded([], []) as server:
        with pytest.raises(StoreRefused) as caught:
            await EtcdStore.open(server.options(user="u", password="secret"))
        assert "secret" not in str(caught.value)


# --- leases


async def test_a_lease_that_etcd_does_not_know_is_lost() -> None:
    gone = (200, {"result": {"header": header(), "ID": "5"}})
    async with opened(script(keep_alive=gone)) as store:
        with pytest.raises(LeaseLost):
            await store.keep_alive(LeaseId(5))
    alive = (200, {"result": {"header": header(), "ID": "5", "TTL": "3"}})
    async with opened(script(keep_alive=alive)) as store:
        await store.keep_alive(LeaseId(5))


async def test_a_lease_is_kept_alive_past_a_crowd_of_slow_commits() -> None:
    server = script(txn=SILENCE, keep_alive=(200, {"result": {"header": header(), "TTL": "3"}}))
    async with opened(server) as store:
        crowd = [asyncio.create_task(store.commit({}, {"a": b""})) for _ in range(100)]
        while server.paths().count(TXN) < 64:
            await asyncio.sleep(0.001)
        await store.keep_alive(LeaseId(5))
        assert server.paths().count(TXN) == 64
        for task in crowd:
            task.cancel()
        await asyncio.wait(crowd)


async def test_a_revocation_without_an_answer_is_unknown() -> None:
    async with opened(script(revoke=SILENCE)) as store:
        with pytest.raises(UnknownOutcome):
            await store.revoke(LeaseId(5))

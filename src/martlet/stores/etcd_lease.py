"""Leases in etcd: to grant, to keep alive and to revoke one.

etcd counts a lease's life in whole seconds and does not go below a minimum of its own (1.5 election timeouts, 2 s as
it comes), so a lease may live longer than asked for, never shorter. After a change of etcd's leader every lease
begins its time again. The holder of a lease therefore fences itself by its own clock: see
`martlet.cluster.leases`.

All three calls may be made twice without harm, so they are tried on every member: a lease that is not used runs out,
a lease id is never given twice, and a lease kept alive twice lives from the second time.

Proved by: tests/unit/stores/test_etcd_gateway.py, tests/stores/test_etcd_contract.py
"""

from martlet.base.invariant import invariant
from martlet.cluster.store import LeaseId, LeaseLost, StoreUnavailable, UnknownOutcome
from martlet.stores.etcd_gateway import LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, EtcdGateway
from martlet.stores.etcd_json import BadAnswer, as_number, pack


async def grant(gateway: EtcdGateway, ttl_ms: int) -> LeaseId:
    invariant(ttl_ms > 0, "a lease lives for some time")
    seconds = -(-ttl_ms // 1000)
    answer = await gateway.read(LEASE_GRANT, pack({"TTL": str(seconds)}), urgent=True)
    return LeaseId(_number(answer, "ID"))


async def keep_alive(gateway: EtcdGateway, lease: LeaseId) -> None:
    answer = await gateway.read(LEASE_KEEP_ALIVE, pack({"ID": str(lease)}), urgent=True)
    if _number(answer, "TTL") <= 0:
        raise LeaseLost(f"lease {lease} has expired or was revoked")


async def revoke(gateway: EtcdGateway, lease: LeaseId) -> None:
    try:
        await gateway.read(LEASE_REVOKE, pack({"ID": str(lease)}), urgent=True)
    except LeaseLost:
        return
    except StoreUnavailable as error:
        raise UnknownOutcome(f"lease {lease} may still be there: {error}") from error


def _number(answer: dict[str, object], name: str) -> int:
    try:
        return as_number(answer.get(name), name)
    except BadAnswer as error:
        raise StoreUnavailable(f"etcd's answer about a lease makes no sense: {error}") from error

"""Names of topics and groups for a shell that completes a command line; silent and quick when no broker answers."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

from martlet.base.addresses import Address, parse_bootstrap

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

_COMPLETION_TIMEOUT_MS: Final = 1_000


def topic_names(bootstrap: Sequence[Address] | str) -> list[str]:
    """The topics, internal ones left out; none when no broker answers within a second."""

    async def ask(cluster: "Cluster") -> list[str]:
        return [name for name, topic in (await cluster.refresh_all()).items() if not topic.is_internal]

    return _names(bootstrap, ask)


def group_names(bootstrap: Sequence[Address] | str) -> list[str]:
    """The groups; none when no broker answers within a second."""

    async def ask(cluster: "Cluster") -> list[str]:
        from martlet.client.groups import Groups

        return [listing.group_id for listing in await Groups(cluster).listings()]

    return _names(bootstrap, ask)


def _names(bootstrap: Sequence[Address] | str, ask: Callable[["Cluster"], Awaitable[list[str]]]) -> list[str]:
    import asyncio

    from martlet.base.errors import MartletError
    from martlet.client.cluster import Cluster

    async def conversation() -> list[str]:
        addresses = parse_bootstrap(bootstrap) if isinstance(bootstrap, str) else bootstrap
        async with asyncio.timeout(_COMPLETION_TIMEOUT_MS / 1000), Cluster(addresses) as cluster:
            return await ask(cluster)

    try:
        return asyncio.run(conversation())
    except (MartletError, OSError, ValueError):
        return []

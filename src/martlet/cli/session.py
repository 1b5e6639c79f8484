"""One command's conversation with the cluster: opened, used and closed around a coroutine."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from martlet.cli.client_config import read_client_config
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import Target
from martlet.client.options import ClientOptions
from martlet.client.security import ClientSecurity

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

Result = TypeVar("Result")

_CONNECT_TIMEOUT_MS: Final = 5_000


def run_with_cluster(target: Target, work: Callable[["Cluster"], Awaitable[Result]]) -> Result:
    """Connect to the cluster, do the work, disconnect; failures come out as they are."""
    import asyncio

    from martlet.cli.suggestions import nearest_names
    from martlet.client.cluster import Cluster

    options = ClientOptions(
        client_id="martlet-cli",
        security=security_of(target),
        connect_timeout_ms=min(target.timeout_ms, _CONNECT_TIMEOUT_MS),
        request_timeout_ms=target.timeout_ms,
        retry_timeout_ms=target.timeout_ms,
        unknown_topic_wait_ms=0,
    )

    async def conversation() -> Result:
        async with Cluster(target.bootstrap, options) as cluster, nearest_names(cluster):
            return await work(cluster)

    return asyncio.run(conversation())


def security_of(target: Target) -> ClientSecurity:
    """How the verb's connections are protected."""
    if target.client_config is None:
        return ClientSecurity()
    try:
        return read_client_config(target.client_config)
    except ValueError as error:
        raise CommandFailed(ExitCode.USAGE, str(error)) from None

"""Which name a person probably meant: the nearest topic or group that the cluster has."""

import asyncio
import contextlib
import difflib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

from martlet.base.errors import MartletError
from martlet.client.errors import GroupMissing, TopicUnknown

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

_TIMEOUT_SECONDS: Final = 1.0


@contextlib.asynccontextmanager
async def nearest_names(cluster: "Cluster") -> AsyncIterator[None]:
    """A topic or group that does not exist gets a note with the nearest name, if the cluster says it in time."""
    try:
        yield
    except (TopicUnknown, GroupMissing) as error:
        await _note_nearest(cluster, error)
        raise


async def _note_nearest(cluster: "Cluster", error: TopicUnknown | GroupMissing) -> None:
    is_topic = isinstance(error, TopicUnknown)
    wanted, verb = (error.topic, "topic") if isinstance(error, TopicUnknown) else (error.group, "group")
    with contextlib.suppress(MartletError, TimeoutError):
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            names = await (_topic_names(cluster) if is_topic else _group_names(cluster))
        if close := difflib.get_close_matches(wanted, names, n=1):
            error.add_note(f"did you mean {close[0]!r}? `martlet {verb} list` shows the {verb}s")


async def _topic_names(cluster: "Cluster") -> list[str]:
    return [name for name, topic in (await cluster.refresh_all()).items() if not topic.is_internal]


async def _group_names(cluster: "Cluster") -> list[str]:
    from martlet.client.groups import Groups

    return [listing.group_id for listing in await Groups(cluster).listings()]

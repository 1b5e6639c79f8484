"""The table of APIs this broker serves, made from the handler modules; ApiVersions is computed from it.

A handler module declares KEY and VERSIONS (first and last version served) and either REQUEST and `handle`, for
an API whose messages go through the generic codec, or `start`, for those that have codecs of their own.
"""

from collections.abc import Awaitable, Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Protocol, TypeAlias

from martlet.broker.ground.request import Link, Reply, RequestContext
from martlet.broker.services import BrokerServices
from martlet.wire.api_keys import ApiKey, Versions


class MessageHandler(Protocol):
    """Answers one decoded request with one message, at once or later."""

    def __call__(
        self, broker: BrokerServices, request: Any, context: RequestContext, /
    ) -> object | Awaitable[object]: ...


class RawHandler(Protocol):
    """Reads the request from the frame itself and completes the reply itself, at once or in what it returns."""

    def __call__(
        self, broker: BrokerServices, link: Link, frame: memoryview, reply: Reply, /
    ) -> Awaitable[None] | None: ...


@dataclass(frozen=True, slots=True)
class MessageApi:
    """An API served through the generic message codec."""

    key: ApiKey
    versions: Versions
    advertised: Versions
    request: type[Any]
    handle: MessageHandler
    ends_with_connection: bool = False
    """Whether waiting for the answer ends when the client is gone."""


@dataclass(frozen=True, slots=True)
class RawApi:
    """An API with a hand-written codec."""

    key: ApiKey
    versions: Versions
    advertised: Versions
    start: RawHandler


Api: TypeAlias = MessageApi | RawApi


def build_registry(modules: Iterable[ModuleType]) -> dict[int, Api]:
    """The APIs declared by these handler modules, by key."""
    registry: dict[int, Api] = {}
    for module in modules:
        versions = Versions(*module.VERSIONS)
        advertised = Versions(*getattr(module, "ADVERTISED", versions))
        key = ApiKey(module.KEY)
        if hasattr(module, "start"):
            registry[key] = RawApi(key, versions, advertised, module.start)
        else:
            ends = getattr(module, "ENDS_WITH_CONNECTION", False)
            registry[key] = MessageApi(key, versions, advertised, module.REQUEST, module.handle, ends)
    return registry

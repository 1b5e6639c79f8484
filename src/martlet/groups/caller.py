"""Who asks, as far as the groups machine cares."""

from typing import NamedTuple


class Caller(NamedTuple):
    """The client behind a request and the version of the API it used."""

    client_id: str
    client_host: str
    """As shown by tools: a slash and the address, like "/127.0.0.1"."""
    version: int

"""Who a request speaks for."""

from typing import Final, NamedTuple


class Principal(NamedTuple):
    """A user as access rules name one: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")
"""The principal of a connection through a listener that asks for no authentication; the name is Kafka's."""

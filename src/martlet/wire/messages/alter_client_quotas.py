"""AlterClientQuotas (key 49): sets or removes quotas of users, client ids and addresses.

Versions 0–1; v1 is the flexible one. `EntryData` is two structs of one name, that of the request and of the response.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class EntityData:
    """One part of an entity; None names the default."""

    entity_type: str = ""
    entity_name: str | None = None


@message
class OpData:
    """One quota to set or remove."""

    key: str = ""
    value: float = 0.0
    remove: bool = False


@message
class EntryData:
    """The changes of one entity, or what became of them."""

    entity: list[EntityData] = field(default_factory=list)
    ops: list[OpData] = field(default_factory=list)  # request
    error_code: int = 0  # response
    error_message: str | None = None  # response


@message
class AlterClientQuotasRequest:
    """The changes."""

    entries: list[EntryData] = field(default_factory=list)
    validate_only: bool = False


@message
class AlterClientQuotasResponse:
    """The results by entity."""

    throttle_time_ms: int = 0
    entries: list[EntryData] = field(default_factory=list)

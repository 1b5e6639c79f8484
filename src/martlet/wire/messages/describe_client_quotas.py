"""DescribeClientQuotas (key 48): the quotas of users, client ids and addresses.

Versions 0–1; v1 is the flexible one. Match types: 0 exactly this name, 1 the default, 2 any that is named.
"""

from dataclasses import field

from martlet.wire.message import message


@message
class ComponentData:
    """What one part of an entity must be."""

    entity_type: str = ""
    match_type: int = 0
    match: str | None = None


@message
class DescribeClientQuotasRequest:
    """The filter; strict takes only entities without other parts."""

    components: list[ComponentData] = field(default_factory=list)
    strict: bool = False


@message
class EntityData:
    """One part of an entity; None names the default."""

    entity_type: str = ""
    entity_name: str | None = None


@message
class ValueData:
    """One quota."""

    key: str = ""
    value: float = 0.0


@message
class EntryData:
    """The quotas of one entity."""

    entity: list[EntityData] = field(default_factory=list)
    values: list[ValueData] = field(default_factory=list)


@message
class DescribeClientQuotasResponse:
    """The quotas by entity."""

    throttle_time_ms: int = 0
    error_code: int = 0
    error_message: str | None = None
    entries: list[EntryData] | None = field(default_factory=list)

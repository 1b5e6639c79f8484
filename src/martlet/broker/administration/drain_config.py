"""`martlet.drain`: a request to empty a broker, in the form of a broker's setting so that any Kafka client can make it.

Setting it to true marks the broker in the metadata store; the controller then moves away what it holds. Deleting it, or
setting it to false, takes the mark away. Unlike other settings it can be asked for and changed at any broker, because
the broker meant may not be running. It is changed by IncrementalAlterConfigs only, in a request of its own for that
broker; AlterConfigs, which replaces all other settings, leaves it as it is.
"""

from collections.abc import Sequence
from typing import Final

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.ids import BrokerId
from martlet.broker.administration.partition_admin import PartitionAdmin
from martlet.cluster.image import MetadataImage
from martlet.configs.changes import ConfigChange, ConfigOperation
from martlet.configs.definition import ConfigDef, ConfigType
from martlet.configs.effective import ConfigEntry, ConfigSource

DRAIN: Final = "martlet.drain"

_DEFINITION: Final = ConfigDef(
    name=DRAIN,
    type=ConfigType.BOOLEAN,
    default="false",
    doc="Whether the broker is to be emptied: it gets no new partitions, and those it holds are moved to others.",
)


def asks_only_for_drain(names: Sequence[str] | None) -> bool:
    """Whether every broker can answer it for every other."""
    return names is not None and list(names) == [DRAIN]


def drain_entry(image: MetadataImage, name: str) -> ConfigEntry:
    """The setting of the broker of that name, as DescribeConfigs shows it."""
    mark = image.drain(_known_broker(image, name))
    return ConfigEntry(
        name=DRAIN,
        value="true" if mark is not None else "false",
        source=ConfigSource.DYNAMIC_BROKER if mark is not None else ConfigSource.DEFAULT,
        read_only=False,
        is_sensitive=False,
        synonyms=(),
        type=_DEFINITION.type,
        documentation=_DEFINITION.doc,
    )


async def change_drain(
    admin: PartitionAdmin, image: MetadataImage, name: str, changes: Sequence[ConfigChange], *, validate_only: bool
) -> None:
    """Carry out the change of this one setting; raises ApiError when the request holds others as well."""
    if len(changes) != 1:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{DRAIN} is changed by itself, without other settings")
    (change,) = changes
    target = _known_broker(image, name)
    if change.operation not in (ConfigOperation.SET, ConfigOperation.DELETE):
        raise ApiError(ErrorCode.INVALID_CONFIG, f"{DRAIN} is not a list: it can be set but not appended to")
    is_drained = change.operation == ConfigOperation.SET and bool(_DEFINITION.read(change.value or ""))
    await (admin.drain_broker if is_drained else admin.undrain_broker)(target, validate_only=validate_only)


def _known_broker(image: MetadataImage, name: str) -> BrokerId:
    if not name.isascii() or not name.isdigit() or len(name) > len(str(2**31)):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{DRAIN} is a setting of a single broker, named by its number")
    target = BrokerId(int(name))
    if image.broker(target) is None:
        raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no broker {target} in this cluster")
    return target

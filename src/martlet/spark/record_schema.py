"""The columns of a message as Spark sees it: those of Spark's Kafka source, in its order and with its types.

Rules: names and types only, in Spark's notation; importable without Arrow.
"""

from collections.abc import Iterable, Iterator
from typing import Final

_TYPES: Final = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    "headers": "array<struct<key:string,value:binary>>",
}

HEADERS: Final = "headers"
ALWAYS: Final = tuple(name for name in _TYPES if name != HEADERS)
"""The columns there are unless others are named; headers come on demand."""


def known_columns() -> Iterator[str]:
    return iter(_TYPES)


def schema_text(columns: Iterable[str]) -> str:
    """The schema in Spark's own notation."""
    return ", ".join(f"`{column}` {_TYPES[column]}" for column in columns)

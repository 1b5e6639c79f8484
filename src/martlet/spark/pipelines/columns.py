"""Columns as people write them, 'id long not null, amount double', in Spark's types."""

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from martlet.base.errors import MartletError


class ColumnsError(MartletError):
    """A list of columns cannot be understood."""


def parse_columns(text: str) -> StructType:
    """The columns; none for an empty text. Needs a session, because Spark parses it."""
    if not text.strip():
        return StructType()
    try:
        columns = StructType.fromDDL(text)
    except PySparkException as error:
        raise ColumnsError(f"{text!r} is no list of columns, like 'id long not null, amount double'") from error
    if not isinstance(columns, StructType):
        raise ColumnsError(f"{text!r} is one type, not a list of columns, like 'id long not null, amount double'")
    return columns

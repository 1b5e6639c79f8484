"""`quality`: JSON messages are checked; what passes goes on, what fails goes to quarantine with every reason.

Checks, in this order: the value is a JSON object; fields that must be there are; fields have their types; rules hold.
A rule is an SQL expression over the fields; it fails when it is false, and also when it is unknown because a field is
missing. A message keeps key and headers; in quarantine a header `martlet-reason` is added for each reason, and
`martlet-source` says where it came from.

Both targets are written by one query, so a message is never in neither. Proved by: tests/spark/test_quality.py.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import AtomicType, StructField, StructType

from martlet.base.errors import MartletError
from martlet.spark.pipelines.catalogue import QualityOptions
from martlet.spark.pipelines.columns import parse_columns
from martlet.spark.pipelines.flows import PipelineRun

REASON: Final = "martlet-reason"
SOURCE: Final = "martlet-source"

_MESSAGE: Final = "_message"
_RAW: Final = "_raw"
_SHOWN_LENGTH: Final = 40


class RuleError(MartletError):
    """A rule cannot be understood."""


def check(options: QualityOptions) -> None:
    parse_rules(options.rule)


def start(run: PipelineRun, options: QualityOptions) -> None:
    quarantine = options.quarantine or f"{options.topic}-quarantine"
    judged = with_reasons(run.read_stream(options.topic), parse_columns(options.columns), parse_rules(options.rule))
    run.write_topic(routed(judged, options.to, quarantine), None, name="quality")


def parse_rules(rules: Sequence[str]) -> dict[str, str]:
    """NAME=EXPRESSION by name."""
    parsed: dict[str, str] = {}
    for rule in rules:
        name, separator, expression = rule.partition("=")
        if not separator or not name.strip().isidentifier() or not expression.strip():
            raise RuleError(f"{rule!r} is not NAME=EXPRESSION, like positive=amount > 0")
        parsed[name.strip()] = expression.strip()
    return parsed


def with_reasons(messages: DataFrame, columns: StructType, rules: Mapping[str, str]) -> DataFrame:
    """The messages with a column `reasons`, empty for those that pass."""
    # The message goes into one column, so that rules see the fields by name and nothing else.
    read = messages.select(
        F.struct(*messages.columns).alias(_MESSAGE),
        F.from_json(F.col("value").cast("string"), "map<string,string>").alias(_RAW),
    )
    read = read.select(_MESSAGE, _RAW, *(_value(field).alias(field.name) for field in columns))
    checks = [_check(field) for field in columns] + [_rule(name, rule) for name, rule in rules.items()]
    found = F.filter(F.array(*checks, F.lit(None).cast("string")), lambda reason: reason.isNotNull())
    no_object = F.array(F.lit("the value is not a JSON object"))
    reasons = F.when(F.col(_RAW).isNull(), no_object).otherwise(found)
    return read.select(f"{_MESSAGE}.*", reasons.alias("reasons"))


def routed(judged: DataFrame, passed: str, quarantine: str) -> DataFrame:
    """Where each message goes; a topic column does it."""
    ok = F.size("reasons") == 0
    source = F.concat_ws("/", "topic", F.col("partition").cast("string"), F.col("offset").cast("string"))
    notes = F.concat(
        F.transform("reasons", lambda reason: _header(F.lit(REASON), reason)), F.array(_header(F.lit(SOURCE), source))
    )
    headers = F.coalesce("headers", F.array().cast("array<struct<key:string,value:binary>>"))
    return judged.select(
        "key",
        "value",
        F.when(ok, F.col("headers")).otherwise(F.concat(headers, notes)).alias("headers"),
        F.when(ok, F.lit(passed)).otherwise(F.lit(quarantine)).alias("topic"),
    )


def _header(name: Column, value: Column) -> Column:
    return F.struct(name.alias("key"), value.cast("binary").alias("value"))


def _value(field: StructField) -> Column:
    """The field in its type, or null where it cannot be read as that."""
    text = F.col(_RAW)[field.name]
    if isinstance(field.dataType, AtomicType):
        return text.try_cast(field.dataType)
    return F.from_json(text, field.dataType.simpleString())


def _check(field: StructField) -> Column:
    """Why the field is wrong, or null."""
    text = F.col(_RAW)[field.name]
    shown = F.substring(text, 1, _SHOWN_LENGTH)
    wrong_type = F.concat(F.lit(f"{field.name}: "), shown, F.lit(f" is not {field.dataType.simpleString()}"))
    missing = F.lit(None).cast("string") if field.nullable else F.lit(f"{field.name}: is missing")
    return F.when(text.isNull(), missing).when(F.col(field.name).isNull(), wrong_type)


def _rule(name: str, expression: str) -> Column:
    """Why the rule is broken, or null."""
    return F.when(~F.coalesce(F.expr(expression), F.lit(False)), F.lit(f"{name}: {expression}"))

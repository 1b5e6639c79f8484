"""`martlet acl`: the access rules, and which of them decides.

A resource is written KIND:NAME, like topic:payments; NAME* means all names that begin so, * all, and `cluster` stands
alone. `test` decides by the same table as the broker.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from martlet.base.principals import Principal
from martlet.cli.exit_codes import ExitCode
from martlet.cli.options import Target, connects, json_option
from martlet.cli.output import print_json, print_note, print_table
from martlet.cli.session import run_with_cluster
from martlet.security.authorizer import Authorizer
from martlet.security.rule_table import RuleTable
from martlet.security.rules import (
    ANY_HOST,
    ANY_NAME,
    CLUSTER_NAME,
    Operation,
    Pattern,
    PatternKind,
    Permission,
    ResourceKind,
    Rule,
    check_rule,
)

if TYPE_CHECKING:
    from martlet.client.cluster import Cluster

_KINDS = {
    "topic": ResourceKind.TOPIC,
    "group": ResourceKind.GROUP,
    "transactional-id": ResourceKind.TRANSACTIONAL_ID,
}


class ResourceType(click.ParamType[Pattern]):
    """KIND:NAME, or `cluster`."""

    name = "RESOURCE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Pattern:
        if isinstance(value, Pattern):
            return value
        if value == "cluster":
            return Pattern(ResourceKind.CLUSTER, PatternKind.LITERAL, CLUSTER_NAME)
        word, separator, name = str(value).partition(":")
        kind = _KINDS.get(word)
        if kind is None or not separator or not name:
            self.fail(f"{value!r} is not KIND:NAME with a kind of {', '.join(_KINDS)}, or cluster", param, ctx)
        if name != ANY_NAME and name.endswith("*"):
            return Pattern(kind, PatternKind.PREFIXED, name[:-1])
        return Pattern(kind, PatternKind.LITERAL, name)


class OperationType(click.ParamType[Operation]):
    """An operation in small letters, with hyphens."""

    name = "OPERATION"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Operation:
        if isinstance(value, Operation):
            return value
        found = Operation.__members__.get(str(value).upper().replace("-", "_"))
        if found is None:
            self.fail(f"{value!r} is none of {', '.join(_word(one) for one in Operation)}", param, ctx)
        return found


RESOURCE = ResourceType()
OPERATION = OperationType()

_user = click.argument("user")
_operation = click.argument("operation", type=OPERATION)
_resource = click.argument("resource", type=RESOURCE)
_host = click.option("--host", default=ANY_HOST, show_default=True, help="From this address only.")


def _names_rule(command: Callable[..., None]) -> Callable[..., None]:
    return _user(_operation(_resource(_host(json_option(connects(command))))))


@click.group()
def acl() -> None:
    """Allow, deny, list and remove access rules, and test which of them decides."""


@acl.command("allow", short_help="Allow a user an operation on a resource.")
@_names_rule
def allow(user: str, operation: Operation, resource: Pattern, host: str, as_json: bool, target: Target) -> None:
    """Allow USER the OPERATION on RESOURCE, like `martlet acl allow alice read topic:payments`."""
    _add(_rule(user, operation, resource, host, Permission.ALLOW), target, as_json)


@acl.command("deny")
@_names_rule
def deny(user: str, operation: Operation, resource: Pattern, host: str, as_json: bool, target: Target) -> None:
    """Deny USER the OPERATION on RESOURCE, whatever allows it."""
    _add(_rule(user, operation, resource, host, Permission.DENY), target, as_json)


@acl.command("remove", short_help="Remove what was allowed or denied.")
@_names_rule
def remove(user: str, operation: Operation, resource: Pattern, host: str, as_json: bool, target: Target) -> None:
    """Remove what was said of USER, OPERATION and RESOURCE, allowed or denied."""
    rules = [_rule(user, operation, resource, host, permission) for permission in Permission]

    async def work(cluster: "Cluster") -> list[Rule]:
        from martlet.client.access_admin import AccessAdmin

        admin = AccessAdmin(cluster)
        found = [rule for rule in await admin.rules() if rule in rules]
        if found:
            await admin.remove_rules(found)
        return found

    removed = run_with_cluster(target, work)
    if as_json:
        print_json([_as_data(rule) for rule in removed])
    for rule in removed:
        print_note(f"removed: {rule}")
    if not removed:
        print_note("there was no such rule")


@acl.command("list")
@json_option
@connects
def list_rules(as_json: bool, target: Target) -> None:
    """List the access rules."""
    rules = _rules(target)
    if as_json:
        print_json([_as_data(rule) for rule in rules])
    elif rules:
        headers = ["PRINCIPAL", "HOST", "PERMISSION", "OPERATION", "RESOURCE"]
        print_table(headers, [[*_as_data(rule).values()] for rule in rules])
    else:
        print_note("there are no access rules")


@acl.command("test", short_help="Say whether a user may do something, and by which rule.")
@_user
@_operation
@_resource
@click.option("--host", default="127.0.0.1", show_default=True, help="The address that the user would come from.")
@json_option
@connects
def test(user: str, operation: Operation, resource: Pattern, host: str, as_json: bool, target: Target) -> int:
    """Say whether USER may do OPERATION to RESOURCE, and by which rule; super users are not known here."""
    if resource.match is PatternKind.PREFIXED or resource.name == ANY_NAME:
        raise click.UsageError("a test is about one resource, by its whole name")
    authorizer = Authorizer(table=RuleTable(_rules(target)))
    name = user.removeprefix("User:")
    decision = authorizer.explain(Principal("User", name), host, operation, resource.kind, resource.name)
    if as_json:
        print_json({"allowed": decision.allowed, "reason": decision.reason})
    else:
        click.echo(f"{'allowed' if decision.allowed else 'denied'}: {decision.reason}")
    return ExitCode.OK if decision.allowed else ExitCode.FAILURE


def _add(rule: Rule, target: Target, as_json: bool) -> None:
    async def work(cluster: "Cluster") -> None:
        from martlet.client.access_admin import AccessAdmin

        await AccessAdmin(cluster).add_rules([rule])

    run_with_cluster(target, work)
    if as_json:
        print_json(_as_data(rule))
    print_note(str(rule))


def _rules(target: Target) -> list[Rule]:
    async def work(cluster: "Cluster") -> list[Rule]:
        from martlet.client.access_admin import AccessAdmin

        return await AccessAdmin(cluster).rules()

    return run_with_cluster(target, work)


def _rule(user: str, operation: Operation, resource: Pattern, host: str, permission: Permission) -> Rule:
    principal = user if user.startswith("User:") else f"User:{user}"
    rule = Rule(resource, principal, host, operation, permission)
    try:
        check_rule(rule)
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return rule


def _as_data(rule: Rule) -> dict[str, str]:
    return {
        "principal": rule.principal,
        "host": rule.host,
        "permission": rule.permission.name.lower(),
        "operation": _word(rule.operation),
        "resource": _written(rule.pattern),
    }


def _word(operation: Operation) -> str:
    return operation.name.lower().replace("_", "-")


def _written(pattern: Pattern) -> str:
    if pattern.kind is ResourceKind.CLUSTER:
        return "cluster"
    word = next(word for word, kind in _KINDS.items() if kind is pattern.kind)
    return f"{word}:{pattern.name}{'*' if pattern.match is PatternKind.PREFIXED else ''}"

"""`martlet user`: the users who prove by a password who they are."""

import sys
from typing import TYPE_CHECKING, TextIO

import click

from martlet.base.errors import ApiError, ErrorCode
from martlet.base.secret import Secret
from martlet.cli.confirmation import confirm_deletion
from martlet.cli.options import Target, connects, json_option
from martlet.cli.output import print_json, print_note, print_table
from martlet.cli.session import run_with_cluster

if TYPE_CHECKING:
    from martlet.client.access_admin import UserEntry
    from martlet.client.cluster import Cluster


@click.group()
def user() -> None:
    """Add, list and delete users; a password is read from a file or a prompt, never from the command line."""


@user.command("add", short_help="Add a user, or change a password.")
@click.argument("name")
@click.option(
    "--password-file",
    type=click.File("r"),
    help="Where the password stands, on the first line; - for standard input. Asked for otherwise.",
)
@json_option
@connects
def add(name: str, password_file: TextIO | None, as_json: bool, target: Target) -> None:
    """Add the user NAME, or give an existing one another password; open connections of it end."""
    if password_file is not None:
        text = password_file.readline().rstrip("\r\n")
    elif sys.stdin.isatty():
        text = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        raise click.UsageError("not a terminal, so no password can be asked for; give --password-file")
    if not text:
        raise click.UsageError("the password is empty")
    password = Secret(text)

    async def work(cluster: "Cluster") -> None:
        from martlet.client.access_admin import AccessAdmin

        await AccessAdmin(cluster).set_password(name, password)

    run_with_cluster(target, work)
    if as_json:
        print_json({"user": name})
    print_note(f"user {name!r} has this password now")


@user.command("list", short_help="List the users and how each can prove who it is.")
@json_option
@connects
def list_users(as_json: bool, target: Target) -> None:
    """List the users and the mechanisms by which each can prove who it is."""

    async def work(cluster: "Cluster") -> "list[UserEntry]":
        from martlet.client.access_admin import AccessAdmin

        return await AccessAdmin(cluster).users()

    users = run_with_cluster(target, work)
    rows = [(entry.name, sorted(one.value for one in entry.credentials)) for entry in users]
    if as_json:
        print_json([{"user": name, "mechanisms": mechanisms} for name, mechanisms in rows])
    elif rows:
        print_table(["USER", "MECHANISMS"], [[name, ", ".join(mechanisms)] for name, mechanisms in rows])
    else:
        print_note("there are no users; `martlet user add NAME` makes one")


@user.command("delete", short_help="Delete a user and end its connections.")
@click.argument("name")
@click.option("--yes", is_flag=True, help="Delete without asking.")
@json_option
@connects
def delete(name: str, yes: bool, as_json: bool, target: Target) -> None:
    """Delete the user NAME; its open connections end, its access rules stay."""
    if not yes:
        confirm_deletion(f"Delete user {name!r}?")

    async def work(cluster: "Cluster") -> None:
        from martlet.client.access_admin import AccessAdmin

        admin = AccessAdmin(cluster)
        found = [entry for entry in await admin.users() if entry.name == name]
        if not found:
            raise ApiError(ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name!r}")
        await admin.delete_user(found[0])

    run_with_cluster(target, work)
    if as_json:
        print_json({"user": name})
    print_note(f"user {name!r} is gone")

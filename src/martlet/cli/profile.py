"""`martlet profile`: connections that are remembered by a name, so that verbs need no --bootstrap.

Rules: these verbs ask no broker; what they say about a connection is what the file says.
"""

import os

import click

from martlet.base.addresses import Address
from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed
from martlet.cli.options import BootstrapType, ProfileName, json_option
from martlet.cli.output import print_facts, print_json, print_note, print_table
from martlet.cli.profiles import PROFILE_VARIABLE, Profile, profiles_path, read_profiles, write_profiles

_NONE_YET = "there are no profiles; `martlet profile create NAME --bootstrap HOST:PORT` makes one"


@click.group()
def profile() -> None:
    """Remember connections by name, and choose which one verbs use.

    \b
    martlet profile create work --bootstrap kafka-1:9092,kafka-2:9092 --client-config work.properties
    martlet profile use work              from now on, in every shell
    martlet topic list --profile work     this once

    A flag wins over a profile that --profile names, that over MARTLET_* variables, and these over the profile in use,
    which says nothing once the address comes from elsewhere: a password goes only where it was meant to go.
    """


@profile.command("create")
@click.argument("name")
@click.option("--bootstrap", type=BootstrapType(), required=True, help="A broker to start from; several by commas.")
@click.option(
    "--client-config",
    type=click.Path(dir_okay=False, exists=True),
    metavar="FILE",
    help="The file for --client-config of other verbs, which says how connections are protected.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), metavar="SECONDS", help="How long to wait for an answer."
)
@click.option("--use", "use_it", is_flag=True, help="Use it from now on.")
@click.option("--replace", is_flag=True, help="Replace a profile of this name.")
def create(
    name: str,
    bootstrap: tuple[Address, ...],
    client_config: str | None,
    timeout: float | None,
    use_it: bool,
    replace: bool,
) -> None:
    """Remember a connection as NAME."""
    if not name.strip():
        raise click.UsageError("a profile's name cannot be empty")
    profiles = read_profiles()
    if name in profiles.by_name and not replace:
        raise CommandFailed(ExitCode.CONFLICT, f"there is a profile {name!r} already", "--replace replaces it")
    made = Profile(
        bootstrap=",".join(str(address) for address in bootstrap),
        client_config=None if client_config is None else os.path.abspath(client_config),
        timeout=timeout,
    )
    is_first = not profiles.by_name
    profiles = profiles.with_profile(name, made)
    write_profiles(profiles.using(name) if use_it or is_first else profiles)
    now = "it is in use" if use_it or is_first else f"`martlet profile use {name}` makes verbs use it"
    print_note(f"profile {name!r} is in {profiles_path()}; {now}")


@profile.command("list")
@json_option
def list_profiles(as_json: bool) -> None:
    """List the profiles; the one in use has a star."""
    profiles = read_profiles()
    if as_json:
        print_json(
            [
                {"name": name, "in_use": name == profiles.in_use, **each.as_data()}
                for name, each in sorted(profiles.by_name.items())
            ]
        )
    elif profiles.by_name:
        print_table(
            ["", "PROFILE", "BOOTSTRAP", "CLIENT CONFIG"],
            [
                ["*" if name == profiles.in_use else "", name, each.bootstrap, each.client_config]
                for name, each in sorted(profiles.by_name.items())
            ],
        )
    else:
        print_note(_NONE_YET)


@profile.command("show")
@click.argument("name", required=False, type=ProfileName())
@json_option
def show(name: str | None, as_json: bool) -> None:
    """Show a profile, the one in use if none is named."""
    profiles = read_profiles()
    wanted = name or os.environ.get(PROFILE_VARIABLE) or profiles.in_use
    if wanted is None:
        raise CommandFailed(ExitCode.NOT_FOUND, "no profile is in use", "`martlet profile use NAME` chooses one")
    found = profiles.get(wanted).as_data()
    if as_json:
        print_json({"name": wanted, "in_use": wanted == profiles.in_use, **found})
    else:
        print_facts({"profile": wanted, **{key: str(value) for key, value in found.items()}})


@profile.command("use", short_help="Use a profile from now on, in every shell.")
@click.argument("name", required=False, type=ProfileName())
@click.option("--none", is_flag=True, help="Use no profile from now on.")
def use(name: str | None, none: bool) -> None:
    """Use a profile from now on, in every shell; flags and MARTLET_* variables still win."""
    if (name is None) == (not none):
        raise click.UsageError("name a profile, or give --none")
    write_profiles(read_profiles().using(name))
    print_note("no profile is in use now" if name is None else f"profile {name!r} is in use now")


@profile.command("delete")
@click.argument("name", type=ProfileName())
def delete(name: str) -> None:
    """Forget a profile; nothing happens to the cluster it names."""
    profiles = read_profiles()
    write_profiles(profiles.without(name))
    print_note(f"profile {name!r} is gone" + (", and none is in use now" if profiles.in_use == name else ""))

"""Options that several verbs share, defined once so that they mean the same everywhere."""

import contextlib
import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from martlet.base.addresses import Address, parse_bootstrap
from martlet.base.clock import SystemClock
from martlet.cli.failures import CommandFailed
from martlet.cli.profiles import PROFILE_VARIABLE, read_profiles
from martlet.cli.start_position import Start, parse_end, parse_start

DEFAULT_BOOTSTRAP: Final = "127.0.0.1:9092"

Function = TypeVar("Function", bound=Callable[..., Any])


class Target(NamedTuple):
    """Which cluster a verb talks to, and how long it waits for each answer."""

    bootstrap: tuple[Address, ...]
    timeout_ms: int
    client_config: str | None = None
    """The file that says how connections are protected, and who we are."""


class BootstrapType(click.ParamType[tuple[Address, ...]]):
    """HOST:PORT, several separated by commas."""

    name = "HOST:PORT"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[Address, ...]:
        if isinstance(value, tuple):
            return value
        try:
            return parse_bootstrap(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


class AssignmentType(click.ParamType[tuple[str, str]]):
    """KEY=VALUE."""

    name = "KEY=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        key, separator, text = value.partition("=")
        if not separator or not key.strip():
            self.fail(f"{value!r} is not KEY=VALUE", param, ctx)
        return key.strip(), text


ASSIGNMENT = AssignmentType()


class StartType(click.ParamType[Start]):
    """Where to begin, in the words of --from and --to."""

    name = "START"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if isinstance(value, Start):
            return value
        try:
            return parse_start(value, SystemClock().now_ms())
        except ValueError as error:
            self.fail(str(error), param, ctx)


START = StartType()


class EndType(click.ParamType[Start]):
    """latest, @TIME or an offset."""

    name = "END"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Start:
        if isinstance(value, Start):
            return value
        try:
            return parse_end(value, SystemClock().now_ms())
        except ValueError as error:
            self.fail(str(error), param, ctx)


END = EndType()


class ProfileName(click.ParamType[str]):
    """The name of a profile, completed from those there are."""

    name = "NAME"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        try:
            names = read_profiles().by_name
        except CommandFailed:
            return []
        return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def connects(function: Function) -> Function:
    """Adds --bootstrap, --profile, --timeout and --client-config and hands them over as `target`."""

    @click.option(
        "--bootstrap",
        type=BootstrapType(),
        envvar="MARTLET_BOOTSTRAP",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        show_envvar=True,
        help="A broker to start from; several separated by commas.",
    )
    @click.option(
        "--profile",
        type=ProfileName(),
        envvar=PROFILE_VARIABLE,
        show_envvar=True,
        help="A connection remembered by `martlet profile`.  [default: the one in use]",
    )
    @click.option(
        "--timeout",
        type=click.FloatRange(min=0, min_open=True),
        envvar="MARTLET_TIMEOUT",
        default=10.0,
        show_default=True,
        metavar="SECONDS",
        help="How long to wait for an answer.",
    )
    @click.option(
        "--client-config",
        type=click.Path(dir_okay=False),
        envvar="MARTLET_CLIENT_CONFIG",
        show_envvar=True,
        metavar="FILE",
        help="Security of connections, under Kafka's names: security.protocol, sasl.username, ssl.ca.location ...",
    )
    @functools.wraps(function)
    def with_target(
        *args: Any,
        bootstrap: tuple[Address, ...],
        profile: str | None,
        timeout: float,
        client_config: str | None,
        **kwargs: Any,
    ) -> Any:
        remembered = _remembered(click.get_current_context(), profile)
        if "bootstrap" in remembered:
            bootstrap = parse_bootstrap(str(remembered["bootstrap"]))
        timeout = float(remembered.get("timeout", timeout))
        client_config = str(remembered.get("client-config", client_config or "")) or None
        return function(*args, target=Target(bootstrap, max(1, int(timeout * 1000)), client_config), **kwargs)

    return with_target  # type: ignore[return-value]


def _remembered(ctx: click.Context, profile: str | None) -> dict[str, str | float]:
    """What a profile says where the command line says nothing.

    A profile that is only in use steps back as a whole when the address comes from elsewhere: a password must not go
    to an address it was not meant for.
    """
    is_named = ctx.get_parameter_source("profile") is ParameterSource.COMMANDLINE
    if not is_named and ctx.get_parameter_source("bootstrap") is not ParameterSource.DEFAULT:
        return {}
    outranked = {ParameterSource.DEFAULT, ParameterSource.ENVIRONMENT} if is_named else {ParameterSource.DEFAULT}
    said = read_profiles().chosen(profile).as_data()
    return {
        name: value for name, value in said.items() if ctx.get_parameter_source(name.replace("-", "_")) in outranked
    }


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")


def complete_topics(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Topic names asked from the broker; silent and quick when there is none."""
    from martlet.cli.known_names import topic_names

    names = topic_names(_bootstrap_so_far(ctx))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def complete_groups(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Group names asked from the brokers; silent and quick when there is none."""
    from martlet.cli.known_names import group_names

    names = group_names(_bootstrap_so_far(ctx))
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]


def _bootstrap_so_far(ctx: click.Context) -> Sequence[Address] | str:
    """The --bootstrap of a command line that is still being typed, else what it would be."""
    value = ctx.params.get("bootstrap")
    return value if isinstance(value, tuple) else usual_bootstrap(ctx.params.get("profile"))


def usual_bootstrap(profile: str | None = None) -> str:
    """The address that verbs use without --bootstrap."""
    named = os.environ.get("MARTLET_BOOTSTRAP")
    if named and profile is None:
        return named
    with contextlib.suppress(CommandFailed):
        return read_profiles().chosen(profile or os.environ.get(PROFILE_VARIABLE)).bootstrap or DEFAULT_BOOTSTRAP
    return DEFAULT_BOOTSTRAP


class TopicArgument(click.ParamType[str]):
    """A topic's name, completed from the broker."""

    name = "TOPIC"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("a topic's name cannot be empty", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return complete_topics(ctx, param, incomplete)


TOPIC = TopicArgument()


class GroupArgument(click.ParamType[str]):
    """A group's name, completed from the brokers."""

    name = "GROUP"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value:
            self.fail("a group's name cannot be empty", param, ctx)
        return str(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return complete_groups(ctx, param, incomplete)


GROUP = GroupArgument()


class TopicSelection(NamedTuple):
    """A topic, or some of its partitions."""

    topic: str
    partitions: tuple[int, ...] | None


class TopicSelectionType(click.ParamType[TopicSelection]):
    """TOPIC, or TOPIC:PARTITION with several partitions separated by commas."""

    name = "TOPIC[:PARTITION]"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> TopicSelection:
        if isinstance(value, TopicSelection):
            return value
        topic, separator, numbers = str(value).partition(":")
        if not topic:
            self.fail(f"{value!r} names no topic", param, ctx)
        if not separator:
            return TopicSelection(topic, None)
        if not all(number.isascii() and number.isdigit() for number in numbers.split(",")):
            self.fail(f"{value!r} is not TOPIC:PARTITION, like orders:0 or orders:0,3", param, ctx)
        return TopicSelection(topic, tuple(dict.fromkeys(int(number) for number in numbers.split(","))))

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return complete_topics(ctx, param, incomplete)


TOPIC_SELECTION = TopicSelectionType()


class BrokerType(click.ParamType[int]):
    """A broker's number."""

    name = "BROKER"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        if not str(value).isascii() or not str(value).isdigit() or int(value) >= 2**31:
            self.fail(f"{value!r} is not the number of a broker", param, ctx)
        return int(value)


BROKER = BrokerType()


class BrokerListType(click.ParamType[tuple[int, ...]]):
    """Broker numbers separated by commas."""

    name = "BROKER,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        if isinstance(value, tuple):
            return value
        numbers = [number.strip() for number in str(value).split(",")]
        if not all(number.isascii() and number.isdigit() and int(number) < 2**31 for number in numbers):
            self.fail(f"{value!r} is not a list of broker numbers, like 1,2,3", param, ctx)
        brokers = tuple(map(int, numbers))
        if len(set(brokers)) != len(brokers):
            self.fail(f"{value!r} names a broker twice", param, ctx)
        return brokers


BROKER_LIST = BrokerListType()


def settings_options(function: Function) -> Function:
    """Adds the flags that set a broker's settings and hands them over as `flags` (by key) and `config_file`."""

    @click.option("--data", metavar="DIR", help="Directory for messages and metadata.  [default: ./martlet-data]")
    @click.option("--kafka", metavar="HOST:PORT", help="Where to serve the Kafka protocol.  [default: 127.0.0.1:9092]")
    @click.option(
        "--operations", metavar="HOST:PORT", help="Where to serve health and metrics.  [default: 127.0.0.1:9644]"
    )
    @click.option(
        "--metadata",
        metavar="etcd://HOST:PORT[,...]/PREFIX",
        help="Join the cluster that keeps its metadata there.  [default: a file in --data]",
    )
    @click.option(
        "--config",
        "config_file",
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help="Settings file.  [default: martlet.toml, if there is one]",
    )
    @click.option(
        "--set",
        "assignments",
        multiple=True,
        type=ASSIGNMENT,
        help="Any other setting; `martlet config show` lists them. May be repeated.",
    )
    @functools.wraps(function)
    def with_settings(
        *args: Any,
        data: str | None,
        kafka: str | None,
        operations: str | None,
        metadata: str | None,
        assignments: Sequence[tuple[str, str]],
        **kwargs: Any,
    ) -> Any:
        flags = {key: (f"--set {key}", value) for key, value in assignments}
        named = {"data": data, "kafka": kafka, "operations": operations, "metadata": metadata}
        flags |= {key: (f"--{key}", value) for key, value in named.items() if value is not None}
        return function(*args, flags=flags, **kwargs)

    return with_settings  # type: ignore[return-value]

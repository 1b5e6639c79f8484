"""Where `martlet` starts: the command tree and the one place that turns a failure into an exit code."""

import os
import platform
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, NoReturn

import click

import martlet
from martlet.base.errors import MartletError
from martlet.cli.exit_codes import ExitCode, epilog
from martlet.cli.lazy_group import LazyGroup

if TYPE_CHECKING:
    from martlet.cli.failures import Failure

PROGRAM: Final = "martlet"

_COMMANDS: Final = {
    "up": ("martlet.cli.up:up", "Start Martlet on this machine."),
    "broker": ("martlet.cli.broker:broker", "Start one broker alone."),
    "topic": ("martlet.cli.topic:topic", "Create, list, describe, alter, trim, export and delete topics."),
    "publish": ("martlet.cli.publish:publish", "Publish messages from arguments, standard input or a file."),
    "consume": ("martlet.cli.consume:consume", "Print messages of a topic."),
    "receive": ("martlet.cli.receive:receive", "Receive messages of a subscription, print and settle them."),
    "sub": ("martlet.cli.sub:sub", "Create subscriptions (work queues), look into them, pause, move and delete them."),
    "dlq": ("martlet.cli.dlq:dlq", "Show messages that failed for good, publish them again, delete them."),
    "group": ("martlet.cli.group:group", "List groups, show their members and lag, reset and delete them."),
    "transaction": (
        "martlet.cli.transaction:transaction",
        "List transactions, show what one has open, find hanging ones, abort.",
    ),
    "pipeline": ("martlet.cli.pipeline:pipeline", "Run data pipelines on Spark, see how they do, stop them."),
    "partition": ("martlet.cli.partition:partition", "Show where partitions lie, move them, and elect their leaders."),
    "log": ("martlet.cli.log:log", "Check messages at rest for damage, and repair what is damaged."),
    "user": ("martlet.cli.user:user", "Add, list and delete users who prove by a password who they are."),
    "acl": ("martlet.cli.acl:acl", "Allow, deny, list and remove access rules, and test which of them decides."),
    "cluster": ("martlet.cli.cluster:cluster", "Show how the brokers are, and take one of them out of service."),
    "status": ("martlet.cli.status:status", "Show whether the cluster is reachable and well."),
    "bench": ("martlet.cli.bench:bench", "Measure a cluster: publishing, consuming, latency."),
    "config": ("martlet.cli.config:config", "Show and change settings; where each value comes from."),
    "profile": ("martlet.cli.profile:profile", "Remember connections by name, and choose which one verbs use."),
    "completion": ("martlet.cli.completion:completion", "Print the completion script for your shell."),
}


def _print_version(ctx: click.Context, _parameter: click.Parameter, wanted: bool) -> None:
    if not wanted or ctx.resilient_parsing:
        return
    from martlet.wire.records.index import codec_name

    click.echo(f"{PROGRAM} {martlet.__version__} (Python {platform.python_version()}, record codec: {codec_name()})")
    ctx.exit()


class RootGroup(LazyGroup):
    """The whole command; sees a closed pipe before click does, which would call it a failure."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            result = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output has gone, as in `martlet consume t | head`: that ends us, but is no failure. The
            # interpreter would complain when it flushes at exit, unless it flushes into nothing.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return ExitCode.OK
        return result


@click.group(
    cls=RootGroup,
    lazy=_COMMANDS,
    epilog=epilog(),
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Martlet, a message queue that speaks the Kafka protocol.

    \b
    A first try, in two terminals:
      martlet up
      martlet publish hello "my first message" --create
      martlet consume hello
    """


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; never raises for what a user can cause."""
    try:
        result = cli.main(args=list(arguments), prog_name=PROGRAM, standalone_mode=False)
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        from martlet.cli.failures import failure_of_usage

        return _report(failure_of_usage(error))
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return ExitCode.INTERRUPTED
    except (MartletError, OSError) as error:
        return _fail(error)
    return result if isinstance(result, int) else ExitCode.OK


def _fail(error: Exception) -> int:
    from martlet.cli.failures import failure_of

    failure = failure_of(error)
    if failure is None:
        raise error
    return _report(failure)


def _report(failure: "Failure") -> int:
    from martlet.cli.output import print_error

    print_error(failure.message, failure.next_step)
    return failure.exit_code


def main() -> NoReturn:
    """The console script."""
    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()

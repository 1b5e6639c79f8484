"""The question before something is gone for good. Verbs that delete ask it unless `--yes` was given."""

import sys

import click

from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed


def confirm_deletion(question: str) -> None:
    """Return when the answer is yes; CommandFailed when standard input is no terminal."""
    confirm(question, "nothing was deleted", instead="deletes without asking")


def confirm(question: str, otherwise: str, *, instead: str = "goes on without asking") -> None:
    """Likewise for other things; `otherwise` is said after a no, `instead` without a terminal."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        click.echo(err=True)
        raise CommandFailed(ExitCode.USAGE, f"not a terminal: use --yes, which {instead}") from None
    if not agreed:
        raise CommandFailed(ExitCode.FAILURE, otherwise)

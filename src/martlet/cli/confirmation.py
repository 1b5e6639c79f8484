"""The question before something is gone for good. Verbs that delete ask it unless `--yes` was given."""

import sys

import click

from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed


def confirm_deletion(question: str) -> None:
    """Return when the answer is yes; a UsageError when there is nobody to ask."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError("there is nobody to ask; --yes deletes without asking") from None
    if not agreed:
        raise CommandFailed(ExitCode.FAILURE, "nothing was deleted")

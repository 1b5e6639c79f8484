"""The question before something is gone for good. Verbs that delete ask it unless `--yes` was given."""

import sys

import click

from martlet.cli.exit_codes import ExitCode
from martlet.cli.failures import CommandFailed


def confirm_deletion(question: str) -> None:
    """Return when the answer is yes; a UsageError when there is nobody to ask."""
    confirm(question, "nothing was deleted", instead="--yes deletes without asking")


def confirm(question: str, otherwise: str, *, instead: str = "--yes goes on without asking") -> None:
    """Likewise for other things; `otherwise` is what is said after a no, `instead` when there is nobody to ask."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin.isatty():
            raise
        raise click.UsageError(f"there is nobody to ask; {instead}") from None
    if not agreed:
        raise CommandFailed(ExitCode.FAILURE, otherwise)

"""What a person does after the first start: the commands that the banner of `martlet up` prints.

They work exactly as printed, in any other terminal: the program is named as that terminal can find it, and
--bootstrap is left out only where verbs would go to the address served without it.

Proved by: tests/unit/cli/test_first_steps.py, tests/cli/test_process_end_to_end.py
"""

import os
import shlex
import shutil
import sys
from collections.abc import Sequence

import click

from martlet.cli.options import usual_bootstrap


def print_first_steps(kafka: str, *steps: Sequence[str]) -> None:
    """The steps as commands against the broker at this address."""
    bootstrap = () if kafka == usual_bootstrap() else ("--bootstrap", kafka)
    program = program_to_type(sys.argv[0], sys.executable)
    click.echo("In another terminal:")
    for verb, *arguments in steps:
        click.echo("  " + " ".join((program, verb, *bootstrap, *arguments)))
    click.echo("Ctrl-C stops it.")


def program_to_type(started_as: str, interpreter: str) -> str:
    """How a shell in any directory starts this program: by its name where PATH leads to it, else by its path."""
    if os.path.basename(started_as) == "martlet" and os.path.isfile(started_as):
        on_path = shutil.which("martlet")
        if on_path is not None and os.path.samefile(on_path, started_as):
            return "martlet"
        return shlex.quote(os.path.abspath(started_as))
    return f"{shlex.quote(interpreter)} -m martlet.cli.main"

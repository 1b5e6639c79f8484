"""The `martlet` commands that a text tells its reader to run, and whether the command line has them."""

import ast
import re
from collections.abc import Iterator

import click

from martlet.cli.main import cli

_COMMAND = re.compile(r"(?:^\s*|[`|] ?|: +)martlet ([a-z][^`|\n]*)", re.MULTILINE)


def commands_in(text: str) -> list[str]:
    """What stands after `martlet` at a line's begin, after a colon, in backticks or behind a pipe."""
    return [match.strip() for match in _COMMAND.findall(text)]


def fault_of(command_line: str) -> str | None:
    """What is wrong with a command; None when all its nouns, verbs and flags exist."""
    command: click.Command = cli
    for word in command_line.split():
        if isinstance(command, click.Group):
            if word.isupper():
                return None  # a name to be put in, where a group of commands takes names of other things too
            found = command.get_command(click.Context(command), word.rstrip(",.;:"))
            if found is None:
                return f"martlet {command_line}: there is no {word}"
            command = found
        elif word.startswith("--"):
            flags = [flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)]
            if re.split(r"[=\]),.;:]", word)[0] not in flags:
                return f"martlet {command_line}: there is no {word}"
    return None


def texts_of(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a module with its line; what is put into a formatted one stands there as an X."""
    within: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            within.update(map(id, ast.walk(node)))
            parts = [str(part.value) if isinstance(part, ast.Constant) else " X" for part in node.values]
            yield node.lineno, "".join(parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in within:
            yield node.lineno, node.value

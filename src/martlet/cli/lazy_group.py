"""A click group whose commands are imported when they are used, so that help answers at once.

The names and short helps of the commands are given in a table; `martlet --help` prints from it and imports nothing.
"""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import click
from click.shell_completion import CompletionItem


class LazyGroup(click.Group):
    """Commands by name: where each lives (`module:attribute`) and one line about it."""

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._sources = {name: source for name, (source, _) in lazy.items()}
        # Stand-ins that know their help line only; click also takes its "did you mean" from these names.
        for name, (_, short_help) in lazy.items():
            self.add_command(click.Command(name, short_help=short_help))

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        source = self._sources.get(cmd_name)
        if source is None:
            return super().get_command(ctx, cmd_name)
        module, _, attribute = source.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            raise TypeError(f"{source} is not a command")
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with self._stand_ins():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        with self._stand_ins():
            return super().shell_complete(ctx, incomplete)

    @contextmanager
    def _stand_ins(self) -> Iterator[None]:
        """While only names and help lines are asked for, nothing is imported."""
        sources, self._sources = self._sources, {}
        try:
            yield
        finally:
            self._sources = sources

"""`martlet completion`: the script that teaches a shell to complete commands, names of topics and groups included."""

import click
from click.shell_completion import get_completion_class

_VARIABLE = "_MARTLET_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the completion script for your shell.

    \b
    bash:  martlet completion bash >> ~/.bashrc
    zsh:   martlet completion zsh >> ~/.zshrc
    fish:  martlet completion fish > ~/.config/fish/completions/martlet.fish

    Names of topics and groups are asked from the broker at MARTLET_BOOTSTRAP or 127.0.0.1:9092.
    """
    from martlet.cli.main import PROGRAM, cli

    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"no completion for {shell}")
    # Not through `source()` of the instance's check: printing a bash script must not depend on bash being here.
    complete = kind(cli, {}, PROGRAM, _VARIABLE)
    click.echo(complete.source_template % complete.source_vars())

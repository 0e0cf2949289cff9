"""shep completion: the script by which a shell completes the words of every program; completion.py has their answers."""

from __future__ import annotations

import click

from shepherd.console import common, completion

SHELLS = ("bash", "fish", "zsh")


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@common.standard
def command(shell: str) -> None:
    """Print a script for your shell. With it the shell completes commands, options and their values, for every program of
    Shepherd.

    It completes the programs by their names, in any directory: `shep` and `bin/shep` alike. For fish, write it to
    ~/.config/fish/completions/shep.fish.

    \b
    Examples:
      eval "$(bin/shep completion bash)"
      bin/shep completion zsh >> ~/.zshrc
    """
    from click.shell_completion import get_completion_class

    from shepherd.cli.__main__ import PROGRAMS

    kind = get_completion_class(shell)
    assert kind is not None
    for name in PROGRAMS:
        shell_completion = kind(click.Command(name), {}, name, completion.variable(name))
        click.echo(shell_completion.source_template % shell_completion.source_vars())

"""What a program answers when a shell asks how a line could continue; click finds the words. `shep completion` has shells ask."""

from __future__ import annotations

import click


def variable(name: str) -> str:
    """What a shell sets to ask a program."""
    return f"_{name.replace('-', '_').upper()}_COMPLETE"


def answer(command: click.Command, name: str, instruction: str) -> int:
    """Print it; the exit status."""
    from click.shell_completion import shell_complete

    if shell_complete(command, {}, name, variable(name), instruction):
        raise click.UsageError(f"{variable(name)}={instruction} is nothing that a shell asks for")
    return 0

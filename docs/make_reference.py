"""Makes docs/reference.md from what the programs say of themselves: their --help, cf/shepherd.toml and the exit statuses.

    .venv/bin/python docs/make_reference.py        # writes the page; with "-" it prints it

The page is never edited by hand; a test says when it is stale.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference.md"
sys.path.insert(0, str(ROOT))

from shepherd import errors  # noqa: E402 (the tree beside this file, not one that is installed)
from shepherd.cli.__main__ import PROGRAMS  # noqa: E402

HEAD = """\
# Reference

Every program with its options, every configuration key, every exit status. This page is made from the programs themselves by
`docs/make_reference.py`; do not edit it. [Operations](operations.md) teaches how to work with them.
"""

# Statuses that no exception of ours stands for.
OTHER_STATUSES = (
    (0, "Done.", ""),
    (130, "Interrupted: 128 + the signal; 137 is killed, 143 terminated.", "Run the same command again."),
    (141, "Nobody reads the output any more.", ""),
)


def page() -> str:
    return "\n".join([HEAD, *programs(), *exit_statuses(), *configuration()])


# --- programs -----------------------------------------------------------------------------------------------------


def programs() -> Iterator[str]:
    yield "## Programs\n"
    shared = shared_options()
    yield "All programs have these options; the tables below leave them out.\n"
    yield from option_table(shared)
    for program, entry in PROGRAMS.items():
        yield from chapter(program, importlib.import_module(entry.partition(":")[0]).command, shared)


def shared_options() -> list[click.Option]:
    """The options that every command has, in the same words."""
    leaves = [one for _, one in all_commands() if not isinstance(one, click.Group)]
    rows = [{option_row(option) for option in options_of(one)} for one in leaves]
    return [option for option in options_of(leaves[0]) if option_row(option) in set.intersection(*rows)]


def all_commands() -> Iterator[tuple[str, click.Command]]:
    for program, entry in PROGRAMS.items():
        yield from below(program, importlib.import_module(entry.partition(":")[0]).command)


def below(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, each with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, one in sorted(command.commands.items()):
            yield from below(f"{path} {name}", one)


def chapter(program: str, command: click.Command, shared: list[click.Option]) -> Iterator[str]:
    everywhere = {option_row(option) for option in shared}
    for path, one in below(program, command):
        yield f"{'###' if path == program else '####'} {path}\n"
        yield f"```\n{usage(path, one)}\n```\n"
        yield from prose(one.help or "")
        if isinstance(one, click.Group):
            yield from table(("command", "what it does"), [(f"`{n}`", first_line(c)) for n, c in sorted(one.commands.items())])
        elif own := [option for option in options_of(one) if option_row(option) not in everywhere]:
            yield from option_table(own)


def usage(path: str, command: click.Command) -> str:
    context = click.Context(command)
    arguments = [one.make_metavar(context) for one in command.params if isinstance(one, click.Argument)]
    return " ".join([path, "[OPTIONS]", *(["COMMAND [ARGS]..."] if isinstance(command, click.Group) else arguments)])


def first_line(command: click.Command) -> str:
    """The first sentence of a help text, whole."""
    paragraph = inspect.cleandoc(command.help or "").partition("\n\n")[0].replace("\n", " ")
    return paragraph


def options_of(command: click.Command) -> list[click.Option]:
    context = click.Context(command)
    return [one for one in command.get_params(context) if isinstance(one, click.Option)]


def names(option: click.Option) -> str:
    words = "/".join([*option.opts, *option.secondary_opts])
    return words if option.is_flag or option.count else f"{words} {option.make_metavar(click.Context(click.Command('x')))}"


def help_text(option: click.Option) -> str:
    record = option.get_help_record(click.Context(click.Command("x")))
    return re.sub(r"\s+", " ", record[1]) if record else ""


def option_row(option: click.Option) -> tuple[str, str]:
    return f"`{names(option)}`", help_text(option)


def option_table(options: list[click.Option]) -> Iterator[str]:
    yield from table(("option", "meaning"), [option_row(option) for option in options])


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |\n|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(map(cell, row))} |"
    yield ""


def cell(text: str) -> str:
    return text.replace("|", "\\|")


def prose(text: str) -> Iterator[str]:
    """Paragraphs of a help text; what click shows as it stands, behind a \\b, becomes a block of code."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        marked, lines = paragraph.startswith("\b"), paragraph.lstrip("\b\n").split("\n")
        if not marked:
            yield " ".join(lines) + "\n"
            continue
        if lines[0].endswith(":"):
            yield f"{lines.pop(0)}\n"
        yield "```\n" + inspect.cleandoc("\n" + "\n".join(lines)) + "\n```\n"


# --- exit statuses and configuration ------------------------------------------------------------------------------


def exit_statuses() -> Iterator[str]:
    """The first paragraph of an exception's docstring is what its status means, the second what to do."""
    rows = {status: (meaning, advice) for status, meaning, advice in OTHER_STATUSES}
    for error in vars(errors).values():
        if isinstance(error, type) and issubclass(error, errors.ShepherdError) and "exit_status" in vars(error):
            meaning, _, advice = inspect.cleandoc(error.__doc__ or "").partition("\n\n")
            rows[error.exit_status] = (meaning.replace("\n", " "), advice.replace("\n", " "))
    yield "## Exit statuses\n"
    yield from table(("status", "meaning", "what to do"), [(str(status), *texts) for status, texts in sorted(rows.items())])


def configuration() -> Iterator[str]:
    """The keys of cf/shepherd.toml: its comments are their description."""
    yield "## Configuration: cf/shepherd.toml\n"
    yield "Every key is optional. Units are in the names: `_s` seconds, `_bytes` bytes.\n"
    toml = (ROOT / "cf" / "shepherd.toml").read_text(encoding="utf-8")
    for section, text, keys in re.findall(r"^\[(\w+)\]\s+# (.*)\n((?:#.*\n)*)", toml, re.MULTILINE):
        yield f"### [{section}]\n\n{text[0].upper()}{text[1:]}.\n"
        rows = re.findall(r"^# (\w+) = (.*?)\s+# (.*)$", keys, re.MULTILINE)
        yield from table(("key", "default", "meaning"), [(f"`{section}.{key}`", f"`{value}`", why) for key, value, why in rows])


def main() -> None:
    if sys.argv[1:] == ["-"]:
        print(page(), end="")
    else:
        PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()

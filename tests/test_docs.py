"""Nothing undocumented: every program, subcommand, option, exit status, configuration key and on-disk field is named in docs/.

Columns and records are compared with the tables of docs/formats.md, name by name, width by width, in order.
"""

from __future__ import annotations

import ast
import dataclasses
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from enum import IntEnum
from pathlib import Path

import click
import numpy as np
import pytest

from shepherd import errors, sections
from shepherd.cli.__main__ import PROGRAMS
from shepherd.config import Config
from shepherd.filters import patterns, reading, settings
from shepherd.formats import attributes, bucket, layout, tables, vocabulary
from shepherd.formats.feedback import FEEDBACK

ROOT = Path(__file__).resolve().parents[1]
DOCS = "\n".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md")))
FORMATS = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
TOML = (ROOT / "cf" / "shepherd.toml").read_text(encoding="utf-8")
WIDTHS = {"|u1": "u8", "<u2": "u16", "<u4": "u32", "<u8": "u64", "<i2": "i16", "<i8": "i64"}


def is_named(word: str, text: str) -> bool:
    """Whether the word stands in the text by itself: `--json` is not named by `--json-lines`."""
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def commands(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """A command and all below it, each with the words that call it."""
    yield path, command
    if isinstance(command, click.Group):
        for name, below in command.commands.items():
            yield from commands(f"{path} {name}", below)


def section(title: str) -> str:
    """The part of docs/formats.md from a heading that begins so to the next heading."""
    found = re.search(rf"^#+ {re.escape(title)}.*?\n(.*?)(?=^#+ |\Z)", FORMATS, re.MULTILINE | re.DOTALL)
    assert found, f"docs/formats.md has no heading {title!r}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """The cells of every table row in the text, without headings and rulers."""
    lines = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in line] for line in lines]
    return [
        row
        for i, row in enumerate(cells)
        if not set(row[0]) <= {"-"} and not (i + 1 < len(cells) and set(cells[i + 1][0]) == {"-"})
    ]


# --- programs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_and_option_is_documented(program: str) -> None:
    module = importlib.import_module(PROGRAMS[program].partition(":")[0])
    missing = []
    for path, command in commands(program, module.command):
        if not is_named(path, DOCS):
            missing.append(path)
        if not (command.help or "").strip():
            missing.append(f"the help text of {path}")
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                longest = max([*parameter.opts, *parameter.secondary_opts], key=len)
                missing += [f"{path} {longest}"] if not is_named(longest, DOCS) else []
                missing += [f"the help text of {path} {longest}"] if not parameter.help else []
    assert not missing, f"docs/ does not name: {', '.join(missing)}"


@pytest.mark.parametrize("program", PROGRAMS)
def test_every_command_that_takes_a_database_takes_a_configuration_directory(program: str) -> None:
    """One set of options serves all programs: docs/operations.md says so. `gather` makes a configuration of its own."""
    module = importlib.import_module(PROGRAMS[program].partition(":")[0])
    for path, command in commands(program, module.command):
        options = {option for parameter in command.params for option in parameter.opts}
        assert "--db" not in options or "--cf" in options or program == "gather", path


def test_every_exit_status_is_documented() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.ShepherdError)]
    reference = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    chapter = reference.partition("## Exit statuses")[2].partition("## ")[0]
    advice = {int(row[0]): row[2] for row in rows(chapter)}
    assert {0, 130, *(error.exit_status for error in classes)} <= set(advice)
    assert [status for status, text in advice.items() if not text and status not in (0, 141)] == []


def test_reference_is_what_the_programs_say_now() -> None:
    made = subprocess.run([sys.executable, ROOT / "docs" / "make_reference.py", "-"], capture_output=True, text=True, check=True)
    stored = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    assert made.stdout == stored, "docs/reference.md is stale: run .venv/bin/python docs/make_reference.py"


# --- configuration ----------------------------------------------------------------------------------------------


def test_every_configuration_key_is_documented() -> None:
    missing = []
    for name, keys in dataclasses.asdict(Config()).items():
        if name == "directory":
            continue
        part = re.search(rf"^\[{name}\].*?(?=^\[|\Z)", TOML, re.MULTILINE | re.DOTALL)
        for key in keys:
            if not part or not re.search(rf"^# {key} = ", part[0], re.MULTILINE):
                missing.append(f"[{name}] {key} in cf/shepherd.toml")
            if not is_named(f"{name}.{key}", DOCS):
                missing.append(f"{name}.{key} in docs/")
    assert not missing, f"not named: {', '.join(missing)}"


# --- formats ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", tables.TABLES)
def test_columns_are_as_described(table: str) -> None:
    described = [row[:3] for row in rows(section(f"{table}: sorted by"))]
    widths = {name: WIDTHS[np.dtype(dtype).str] for name, dtype in tables.TABLES[table].items()}
    assert described == [[name, widths[name], kind.name] for name, kind in tables.KINDS[table].items()]


@pytest.mark.parametrize(("title", "name"), [("Journal record", "journal"), ("Plan record", "plan")])
def test_record_is_as_described(title: str, name: str) -> None:
    described = [(int(row[0]), row[1], row[2], re.split(r"[^\w]", row[3])[0]) for row in rows(section(title))]
    record, kinds_of = {"journal": tables.JOURNAL, "plan": tables.PLAN}[name], tables.KINDS[name]
    coded = []
    for offset, width, field in described_fields(record):
        is_spare = field.startswith("spare")
        coded.append((offset, width, "-" if is_spare else kinds_of[field].name, "0" if is_spare else field))
    assert coded == described
    assert is_named(f"{record.itemsize} bytes", FORMATS)


def test_bucket_header_is_as_described() -> None:
    described = [
        (int(row[0]), int(row[1])) for row in rows(section("Buckets (segments)")) if row[0].isdigit() and row[1].isdigit()
    ]
    coded = [(layout.offset_of(bucket.HEADER, name), bucket.HEADER[name].itemsize) for name in layout.names_of(bucket.HEADER)]
    assert coded == described
    assert described[-1][0] + described[-1][1] == bucket.HEADER_BYTES == 64


def test_feedback_is_as_described() -> None:
    described = [(int(row[0]), row[1], re.split(r"[^\w]", row[2])[0]) for row in rows(section("Feedback"))]
    coded = [(*place, "0" if field.startswith("spare") else field) for *place, field in described_fields(FEEDBACK)]
    assert coded == described
    assert is_named(f"{FEEDBACK.itemsize} bytes", FORMATS)


def described_fields(record: np.dtype[np.void]) -> Iterator[tuple[int, str, str]]:
    """Offset, width and name of each field, as the page has them."""
    assert record.fields is not None
    for field in record.names or ():
        dtype, offset = record.fields[field][:2]
        yield offset, WIDTHS[dtype.str], field


def test_kinds_are_as_described() -> None:
    """Every kind has a row, and `nothing` is the value that is shown as null."""
    described = {row[0]: int(row[3]) if row[3] else None for row in rows(section("Kinds"))}
    for kind in {kind for columns in tables.KINDS.values() for kind in columns.values()}:
        name = kind.name if kind.name in described else f"{kind.name.partition(' of ')[0]} of ..."
        assert described[name] == kind.none, kind.name
    assert described.keys() == {
        kind.name if kind.name in described else f"{kind.name.partition(' of ')[0]} of ..."
        for kind in (one for columns in tables.KINDS.values() for one in columns.values())
    }


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("Types", vocabulary.RowType),
        ("Flags of rows", vocabulary.Flag),
        ("Reasons", vocabulary.Reason),
        ("Deferrals", vocabulary.Deferred),
        ("Record kinds", vocabulary.Kind),
        ("Results", vocabulary.Result),
        ("Flags of records", vocabulary.JournalFlag),
        ("Whys", vocabulary.Why),
        ("Flags of links", vocabulary.ContribFlag),
    ],
)
def test_words_are_as_described(title: str, words: type[IntEnum]) -> None:
    assert {int(row[0]): row[1].strip("`") for row in rows(section(title))} == vocabulary.by_number(words)


def test_meanings_are_as_described() -> None:
    for title, meanings in (("Reasons", vocabulary.REASON_TEXT), ("Deferrals", vocabulary.DEFERRED_TEXT)):
        assert {int(row[0]): row[2] for row in rows(section(title))} == meanings


def test_reserved_reasons_have_no_word() -> None:
    assert not set(vocabulary.RESERVED_REASONS) & set(vocabulary.Reason)
    assert "15, 17 and 32 are reserved" in section("Reasons")


def test_sections_are_as_described() -> None:
    text = section("section")
    assert {name: int(number) for number, name in rows(text)} == sections.NAMES
    assert f"From {sections.OWN} to {sections.LAST}" in text
    assert "· 1 html" not in FORMATS.replace(text, "")  # a second list would go its own way


def test_words_of_the_filter_are_described_for_operators() -> None:
    chapter = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8").partition("## Configuration: cf/filter")[2]
    grammar = (ROOT / "cf" / "filter").read_text(encoding="utf-8")
    for words in (reading.VERBS, patterns.URL_KINDS, settings.SET_NAMES):
        assert [word for word in words if not is_named(word, chapter)] == []
        assert [word for word in words if not is_named(word, grammar)] == []
    assert [name for name in sections.NAMES if not is_named(name, grammar)] == []


def letters_read(tree: ast.AST) -> Iterator[str]:
    """Letters that code looks for: in `one.attributes["U"]`, `one.attributes.get("U")` and `"U" in one.attributes`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            owner, key = node.value, node.slice
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
            owner, key = node.func.value, node.args[0]
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.In | ast.NotIn):
            owner, key = node.comparators[0], node.left
        else:
            continue
        if isinstance(owner, ast.Attribute) and owner.attr == "attributes" and isinstance(key, ast.Constant):
            yield str(key.value)


def letters_written(tree: ast.AST) -> Iterator[str]:
    """Letters that code gives to a bucket: in pairs `("U", ...)`."""
    for node in ast.walk(tree):
        first = node.elts[0] if isinstance(node, ast.Tuple) and len(node.elts) == 2 else None
        if isinstance(first, ast.Constant) and isinstance(first.value, str) and len(first.value) == 1:
            yield first.value


def test_letters_of_attributes_are_as_described() -> None:
    described = {letter: (name, form) for letter, name, _, form, _ in rows(section("Attributes"))}
    lines = {"B": ("body line", "-"), "b": ("last body line", "-")}
    assert described == {letter: (kind.name, kind.form) for letter, kind in attributes.TABLE.items()} | lines
    only_old = {row[0] for row in rows(section("Attributes")) if row[4].endswith("v3.0 only")}
    assert only_old == {letter for letter, kind in attributes.TABLE.items() if kind.old}


def test_letters_in_code_are_those_of_the_table() -> None:
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "shepherd").rglob("*.py")}
    current = {letter for letter, kind in attributes.TABLE.items() if not kind.old}
    read = {letter for tree in trees.values() for letter in letters_read(tree)}
    assert {"U", "E", "D", "H"} <= read <= current
    document = ROOT / "shepherd" / "reaper" / "document"
    by_reaper = {
        letter for name in ("page", "robots_rules", "bucket") for letter in letters_written(trees[document / f"{name}.py"])
    }
    described = {row[0] for row in rows(section("Attributes")) if row[4] in ("reaper", "all")}
    assert by_reaper == described


# --- what is named exists ---------------------------------------------------------------------------------------


def missing_files(text: str, names: set[str]) -> set[str]:
    """Files of the tree that a text names by path or by name, and that are not there; `names` are all that are."""
    named = set(re.findall(r"(?<![\w./:-])(?:[a-z_]+/)*[a-z_]+\.py(?!\w)", text))
    return {one for one in named if not any(f"/{name}".endswith(f"/{one}") for name in names)}


def test_files_that_docs_and_docstrings_name_exist() -> None:
    sources = [path for room in ("shepherd", "toyweb", "tests", "bench", "docs") for path in (ROOT / room).rglob("*.py")]
    names = {path.relative_to(ROOT).as_posix() for path in sources}
    texts = {page.name: page.read_text(encoding="utf-8") for page in [*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]}
    for path in sources:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        texts[path.relative_to(ROOT).as_posix()] = ast.get_docstring(tree) or ""
    examples = {"indexer.py"}  # a file that a reader of the page makes
    missing = {name: missing_files(text, names) - examples for name, text in texts.items()}
    assert {name: files for name, files in missing.items() if files} == {}


# --- the checks themselves --------------------------------------------------------------------------------------


def test_word_inside_a_longer_word_is_not_named() -> None:
    assert is_named("--json", "give `--json`, or not")
    assert not is_named("--json", "--json-lines")
    assert not is_named("shep", "shep-plan")


def test_file_that_was_moved_away_is_missing() -> None:
    names = {"shepherd/store/disk/fsio.py"}
    assert missing_files("read fsio.py, store/disk/fsio.py and `net/guard.py`", names) == {"net/guard.py"}


def test_reader_of_letters_sees_reads_and_writes() -> None:
    assert list(letters_read(ast.parse('a.attributes["U"], "E" in b.c.attributes, head.attributes.get("H", b"")'))) == [
        "U",
        "E",
        "H",
    ]
    assert list(letters_written(ast.parse('[("U", x), ("S", y), ("too", "long"), ("a", "b", "c")]'))) == ["U", "S"]


def test_rows_of_a_table_are_read() -> None:
    assert rows("| n | name |\n|---|---|\n| 0 | none |\n\ntext\n\n| a |\n|---|\n| 1 |\n") == [["0", "none"], ["1"]]


def leaves() -> Iterator[tuple[str, click.Command]]:
    for program, entry in PROGRAMS.items():
        command = importlib.import_module(entry.partition(":")[0]).command
        yield from ((path, one) for path, one in commands(program, command) if not isinstance(one, click.Group))


@pytest.mark.parametrize(("path", "command"), [pytest.param(path, one, id=path) for path, one in leaves()])
def test_help_shows_an_example(path: str, command: click.Command) -> None:
    example = rf"^ +(?:bin/)?{re.escape(path)}(?: |$)"
    assert re.search(example, command.help or "", re.MULTILINE), f"{path} --help has no example of its use"

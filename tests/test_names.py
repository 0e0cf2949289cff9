"""Names say type and role: no bare participle names a value, a function or a class, and a class name exists once in the tree.

A test is named by what holds, or by its situation, in plain words.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# What something was done to says neither what it is nor what it is for. `one` and `at` say no more.
WORDS = """
    asked at been brought called came chosen counted did done drawn felt found gave given gone got had heard held
    judged kept known left looked lost made meant met noted one received said seen sent shown spoken stood struck
    taken thought told took tried wanted went
"""
EMPTY = frozenset(WORDS.split())


def names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name of all that a module gives a name to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.lineno, node.name
        elif isinstance(node, ast.arg):
            yield node.lineno, node.arg
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.lineno, node.attr
        elif isinstance(node, ast.alias) and node.asname:
            yield 0, node.asname


def is_empty(name: str) -> bool:
    return name.strip("_").lower() in EMPTY


def empty_names(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    place = path.relative_to(ROOT).as_posix()
    bad = {(line, name) for line, name in names(tree) if is_empty(name)}
    return [f"{place}: module"] * is_empty(path.stem) + [f"{place}:{line}: {name}" for line, name in sorted(bad)]


def public_classes(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node.name for node in tree.body if isinstance(node, ast.ClassDef) and not node.name.startswith("_")]


SOURCES = sorted([*(ROOT / "shepherd").rglob("*.py"), *(ROOT / "toyweb").rglob("*.py")])


def test_no_name_is_a_bare_participle() -> None:
    bad = [line for path in SOURCES for line in empty_names(path)]
    assert bad == [], "\n".join(bad)


def test_class_name_exists_once() -> None:
    places = defaultdict(list)
    for path in SOURCES:
        for name in public_classes(path):
            places[name].append(path.relative_to(ROOT).as_posix())
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("source", ["found = 1", "def told(): ...", "def f(given): ...", "class Kept: ...", "self.held = 1"])
def test_bare_participle_is_caught(source: str) -> None:
    assert any(is_empty(name) for _, name in names(ast.parse(source)))


def test_names_with_a_role_pass() -> None:
    source = "rows_found = 1\ndef kept_rows(deadline_ms): ...\nclass KeptFiles: ..."
    assert not any(is_empty(name) for _, name in names(ast.parse(source)))


# Who reads a list of tests as a specification would have to guess what these mean.
IDIOM = re.compile(
    r"_(told|held|lets?_(in|be)|passe[sd]_over|go(es)?_on|be_had|is_none|nobody_knows|left_alone|taken_for|hangs?_on)(_|$)"
)


def names_with_idioms(tree: ast.AST) -> list[str]:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))
    return [node.name for node in functions if IDIOM.search(node.name)]


def test_tests_are_named_in_plain_words() -> None:
    files = sorted((ROOT / "tests").rglob("*.py"))
    bad = {path.relative_to(ROOT).as_posix(): names_with_idioms(ast.parse(path.read_text(encoding="utf-8"))) for path in files}
    assert {path: tests for path, tests in bad.items() if tests} == {}


@pytest.mark.parametrize(
    ("name", "is_plain"),
    [
        ("test_removed_client_is_let_in", False),
        ("test_fault_is_told", False),
        ("test_url_that_is_none_is_refused", False),
        ("test_removed_client_is_refused", True),
        ("test_crash_before_the_checkpoint", True),
        ("test_threshold_of_a_site", True),
    ],
)
def test_idiom_in_the_name_of_a_test_is_caught(name: str, is_plain: bool) -> None:
    assert names_with_idioms(ast.parse(f"def {name}(): ...")) == ([] if is_plain else [name])

"""Expressions that meet foreign bytes are linear, and stand in one module: shepherd/expressions.py."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.expressions import all_expressions
from tests.support.linear import faults

PACKAGE = Path(__file__).resolve().parents[2] / "shepherd"
HOME = "shepherd/expressions.py"
LIBRARIES = {"re", "re2", "regex", "sre_compile", "sre_parse", "fnmatch", "glob"}
TYPES = {"Match", "Pattern"}  # which anybody may name
SEARCHES = {"search", "finditer", "findall", "split", "sub", "subn", "scanner"}
MATCHES = {"match", "fullmatch", "pattern"}
# Who else may have expressions, and why no stranger can make them slow.
ELSEWHERE = {
    "shepherd/cli/advisories.py": "the operator's lock files, and the directory of advisories that he names",
    "shepherd/cli/dump/buckets.py": "an argument of the operator",
    "shepherd/cli/gather/cf.py": "the operator's cf/filter and cf/shepherd.toml",
    "shepherd/cli/gather/toy.py": "an argument of the operator",
    "shepherd/cli/lock_files.py": "a package index that the operator names, and lock files",
    "shepherd/client/credentials.py": "the operator's key and address of a server",
    "shepherd/config/faults.py": "the operator's cf/shepherd.toml",
    "shepherd/config/reading.py": "the operator's cf/shepherd.toml",
    "shepherd/console/cf_files.py": "the operator's cf/shepherd.toml",
    "shepherd/console/selection_rows.py": "an argument of the operator",
    "shepherd/console/selector_words.py": "arguments of the operator",
    "shepherd/equiv.py": "the operator's cf/url-equiv",
    "shepherd/filters/patterns.py": "the operator's cf/filter; what it makes of it, and links meet, is RE2",
    "shepherd/filters/reading.py": "the operator's cf/filter, by RE2",
    "shepherd/filters/scope.py": "the operator's cf/filter",
    "shepherd/filters/scope_lines.py": "the operator's cf/filter",
    "shepherd/filters/settings.py": "the operator's cf/filter",
    "shepherd/formats/cdxj.py": "URLs of at most 2,000 bytes: it leaves longer ones alone",
    "shepherd/serve/openapi.py": "our own routes",
    "shepherd/serve/tokens.py": "the operator's file of tokens, and names of clients in it",
    "shepherd/store/disk/kinds.py": "names of files, of which the system allows 255 bytes",
    "shepherd/store/disk/locks.py": "lock files, of which at most some hundred bytes are read",
    "shepherd/store/disk/names.py": "names of files, of which the system allows 255 bytes",
    "shepherd/wire/authority.py": "names of hosts that the operator gives",
    "shepherd/wire/tls.py": "certificates of the operator",
}


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield f"shepherd/{path.relative_to(PACKAGE)}", ast.parse(path.read_text(encoding="utf-8"))


def libraries(tree: ast.Module) -> Iterator[str]:
    """The libraries of expressions that a module imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] in LIBRARIES)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in LIBRARIES and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names if alias.name not in TYPES)


def uses(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Names of our expressions, each with the method by which it is used; "" where that does not show."""
    names = {name.partition(".")[0] for name, _ in all_expressions()}
    methods = {id(node.value): node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in names:
            yield f"{node.value.id}.{node.attr}", methods.get(id(node), "")


def test_expressions_stand_in_one_module_or_meet_no_foreign_bytes() -> None:
    importing = {name for name, tree in modules() if name != HOME and any(libraries(tree))}
    assert importing - ELSEWHERE.keys() == set(), "move these to shepherd/expressions.py"
    assert ELSEWHERE.keys() - importing == set(), "these need no place in the list any more"


@pytest.mark.parametrize(
    "source", ["import re", "def f():\n    import re as r", "from re import compile", "import re2", "import sre_parse"]
)
def test_import_is_seen(source: str) -> None:
    assert list(libraries(ast.parse(source)))


def test_expression_takes_linear_time_the_way_it_is_used() -> None:
    searched: dict[str, bool] = {}
    for _, tree in modules():
        for name, method in uses(tree):
            searched[name] = searched.get(name, False) or method not in MATCHES
    complaints = [
        f"{name}: {fault}" for name, compiled in all_expressions() for fault in faults(compiled, searched.get(name, True))
    ]
    assert not complaints, "\n".join(complaints)


def test_expression_is_used() -> None:
    used = {name for _, tree in modules() for name, _ in uses(tree)}
    by_name = {name for name, _ in all_expressions() if name.startswith("RawEnd.")}  # scan.py takes them by the name of their tag
    assert {name for name, _ in all_expressions()} - used - by_name == set()


@pytest.mark.parametrize(
    ("source", "searched"),
    [
        (r"a*b", False),  # takes back
        (r"[a-z]{1,40}:", False),
        (r"(?:a|b)*?c", False),
        (r"\s*+=", True),  # each blank begins an attempt that goes over all others
        (r"<!--[^>]*+-->", True),
        (r"<a[^>]*+>", True),
        (r"<a(?=[^>]*+)", True),  # succeeds, but takes nothing of what it has looked at
        (r"(?:\([^)]*+\)|.)*+", False),  # an alternative looks ahead without end, and the next one takes a single character
        (r"(?:a(?:[^)]*+\))?)*+", False),
        (r"(?:a(?=[^b]*+b)|a)*+", False),
        (r"(?:a?)*", False),
        (r"(a)\1", False),  # a reference is not understood
    ],
)
def test_slow_expression_is_refused(source: str, searched: bool) -> None:
    assert list(faults(re.compile(source), searched))


@pytest.mark.parametrize(
    ("source", "searched"),
    [
        (r"a*+b", False),
        (r"\s*+=", False),
        (r"<[^<>]*+>", True),
        (r"<[^>]*+>?+", True),
        (r"charset[ \t]*+=", True),
        (r"/\*(?:[^*]++|\*(?!/))*+(?:\*/)?+", True),
        (r"(?:[^,(]++|\([^)]*+\)?+)*+", False),
        (r"(?:abc|abd)e?f{8}", True),
    ],
)
def test_linear_expression_is_taken(source: str, searched: bool) -> None:
    assert list(faults(re.compile(source), searched)) == []

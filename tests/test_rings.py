"""No ring of modules: whichever is imported first, it finds the others ready.

Most tests run programs in a process that has imported everything before, where a ring would not be noticed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter

from tests.test_layers import Module, tree


def at_once(body: list[ast.stmt]) -> Iterator[ast.Import | ast.ImportFrom]:
    """The imports that happen when the module is imported: not those of functions and of type checkers."""
    for node in body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield node
        elif (isinstance(node, ast.If) and ast.unparse(node.test) != "TYPE_CHECKING") or isinstance(node, ast.Try | ast.With):
            yield from at_once(node.body)


def imports(module: Module, known: set[str]) -> set[str]:
    found = set()
    for node in at_once(module.tree.body):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & known
        else:
            assert not node.level, f"{module.name}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names} & known or {str(node.module)} & known
    return found - {module.name}


def ring(modules: list[Module]) -> list[str]:
    known = {module.name for module in modules}
    try:
        TopologicalSorter({module.name: imports(module, known) for module in modules}).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_no_ring_of_modules() -> None:
    assert ring(tree()) == []


def test_ring_of_modules_is_caught() -> None:
    here, there = (
        Module("shepherd.store.a", "from shepherd.store import b"),
        Module("shepherd.store.b", "import shepherd.store.a"),
    )
    assert ring([here, there])
    later = Module("shepherd.store.b", "def f():\n    import shepherd.store.a")
    assert not ring([here, later])

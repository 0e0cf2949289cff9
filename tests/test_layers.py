"""The dependency rules of the design, checked on the source of shepherd/ with ast.

Each rule is a function from a module to complaints; one test runs it over the tree, and one shows that it bites.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "shepherd"
MOST_LINES = 400

# Lowest first. A module imports from its own line or from lines above it.
LAYERS: tuple[tuple[str, ...], ...] = (
    (
        *("errors", "addresses", "config", "urls", "sections", "filters", "equiv", "secrets", "text"),
        *("clock", "family", "robots", "dates", "validators", "rate"),
    ),
    ("formats",),
    ("store", "arrays", "readers", "politeness", "wire", "reaper", "cycle", "dispatch"),
    ("importing", "toyweb", "client", "report"),
    ("serve", "export"),
    ("console",),
    ("master",),
    ("cli",),
)
LEVEL = {part: level for level, parts in enumerate(LAYERS) for part in parts}
FORBIDDEN = {  # beyond the order of the lines
    "dispatch": {"reaper"},
    "reaper": {"dispatch"},
}
PURE = ("formats",)  # no paths, no clock, no operating system
IMPURE_IMPORTS = {"os", "pathlib", "shutil", "tempfile", "glob", "subprocess", "socket", "time", "datetime"}

DISK_MODULE = "shepherd.store.disk.fsio"
DISK_OS = {
    "rename", "renames", "replace", "link", "symlink", "unlink", "remove", "rmdir", "removedirs",
    "truncate", "ftruncate", "fsync", "fdatasync", "sync",
}  # fmt: skip
DISK_SHUTIL = {"rmtree", "move"}
# Methods of paths and files, with the most positional arguments they take: what takes more is a function of fsio.
DISK_METHODS = {"unlink": 0, "rmdir": 0, "rename": 1, "replace": 1, "hardlink_to": 1, "symlink_to": 1, "truncate": 1}

EDGE = (
    *(
        "shepherd.cli",
        "shepherd.console",
        "shepherd.master",
        "shepherd.config",
        "shepherd.clock",
        "shepherd.wire",
        "shepherd.reaper",
        "shepherd.dispatch",
    ),
    *("shepherd.importing", "shepherd.toyweb", "shepherd.serve", "shepherd.client"),
)
EDGE_IMPORTS = {"random", "secrets", "uuid"}
EDGE_NAMES = {
    "os": {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv", "urandom", "getrandom"},
    "time": {
        "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns",
        "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns", "localtime", "sleep",
    },
    "datetime": {"now", "utcnow", "today"},
    "numpy": {"random"},
}  # fmt: skip

Rule = Callable[["Module"], Iterator[str]]


@dataclass(frozen=True)
class Module:
    """One module of shepherd, parsed."""

    name: str
    source: str
    is_package: bool = False

    @property
    def part(self) -> str:
        """The line of LAYERS it belongs to: `store` for shepherd.store.disk.fsio."""
        return [*self.name.split("."), ""][1]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def imports(self) -> list[tuple[int, str, str]]:
        """Line, the name it is known by here, and what it is: ("np", "numpy"), ("rename", "os.rename")."""
        return list(self._imports())

    def _imports(self) -> Iterator[tuple[int, str, str]]:
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield node.lineno, alias.asname or alias.name.split(".")[0], alias.name
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    yield node.lineno, alias.asname or alias.name, f"{base}.{alias.name}"

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self.name.split(".")
        keep = len(parents) - node.level + self.is_package
        return ".".join([*parents[:keep], *([node.module] if node.module else [])])

    @cached_property
    def uses(self) -> list[tuple[int, str]]:
        """Line and full name of all that begins with something imported: after `import os as o`, `o.rename` is os.rename."""
        return list(self._uses())

    def _uses(self) -> Iterator[tuple[int, str]]:
        known = {local: full for _, local, full in self.imports}
        for local, full in list(known.items()):
            if full.startswith(local + "."):  # `import os.path` binds `os`
                known[local] = local
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Attribute | ast.Name):
                dotted = ast.unparse(node).split(".")
                if dotted[0] in known:
                    yield node.lineno, ".".join([known[dotted[0]], *dotted[1:]])


def parts_imported(module: Module) -> Iterator[tuple[int, str]]:
    for line, _, full in module.imports:
        names = full.split(".")
        if names[0] == "shepherd" and len(names) > 1 and names[1] in LEVEL:
            yield line, names[1]


# --- the rules --------------------------------------------------------------------------------------------------


def order(module: Module) -> Iterator[str]:
    if module.part not in LEVEL:
        if module.part:
            yield f"{module.name}: belongs to no layer"
        return
    for line, part in parts_imported(module):
        if LEVEL[part] > LEVEL[module.part]:
            yield f"{module.name}:{line}: {module.part} must not import {part}, which stands above it"


def separation(module: Module) -> Iterator[str]:
    for line, part in parts_imported(module):
        if part in FORBIDDEN.get(module.part, ()):
            yield f"{module.name}:{line}: {module.part} must not import {part}"


def purity(module: Module) -> Iterator[str]:
    if module.part not in PURE:
        return
    for line, _, full in module.imports:
        if full.split(".")[0] in IMPURE_IMPORTS:
            yield f"{module.name}:{line}: {module.part} must not import {full}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield f"{module.name}:{node.lineno}: {module.part} must not open files"


def disk(module: Module) -> Iterator[str]:
    if module.name == DISK_MODULE:
        return
    for line, full in module.uses:
        library, _, name = full.partition(".")
        if (library == "os" and name in DISK_OS) or (library == "shutil" and name in DISK_SHUTIL):
            yield f"{module.name}:{line}: {full} belongs into fsio"
    libraries = {local for _, local, _ in module.imports}
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        owner, name = node.func.value, node.func.attr
        if isinstance(owner, ast.Name) and owner.id in libraries and owner.id[0].islower():
            continue  # a function of a module, seen above if it is one of the system's
        keywords = {keyword.arg for keyword in node.keywords} - {"missing_ok", "target", "size"}
        if name in DISK_METHODS and len(node.args) <= DISK_METHODS[name] and not keywords:
            yield f"{module.name}:{node.lineno}: .{name}() belongs into fsio"


def edge(module: Module) -> Iterator[str]:
    if any(module.name == place or module.name.startswith(place + ".") for place in EDGE):
        return
    for line, _, full in module.imports:
        if full.split(".")[0] in EDGE_IMPORTS:
            yield f"{module.name}:{line}: {full} is randomness, which comes in as an argument"
    for line, full in module.uses:
        library, *names = full.split(".")
        if EDGE_NAMES.get(library, set()) & set(names):
            yield f"{module.name}:{line}: {full} is clock, randomness or environment, which come in as arguments"


def slow(module: Module) -> Iterator[str]:
    """What numpy does dozens of times slower than a plain sort, where every row passes by."""
    if module.part not in ("arrays", "cycle"):
        return
    for line, full in module.uses:
        if full == "numpy.unique":
            yield f"{module.name}:{line}: numpy.unique is slow: sort, and compare neighbours (keys.distinct)"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("sort"):
            for _ in (keyword for keyword in node.keywords if keyword.arg == "order"):
                yield f"{module.name}:{node.lineno}: sorting records is slow: sort the columns (numpy.lexsort)"


def length(module: Module) -> Iterator[str]:
    lines = len(module.source.splitlines())
    if lines > MOST_LINES:
        yield f"{module.name}: {lines} lines, more than {MOST_LINES}"


def cycles(modules: list[Module]) -> list[str]:
    """Parts of one layer may use each other, but not in a ring."""
    graph: dict[str, set[str]] = {}
    for module in modules:
        graph.setdefault(module.part, set()).update(part for _, part in parts_imported(module) if part != module.part)
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [" imports ".join(reversed(error.args[1]))]
    return []


# --- over the tree ----------------------------------------------------------------------------------------------


@cache
def tree() -> list[Module]:
    """Every module; each is read and parsed once for all rules."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        names = ["shepherd", *path.relative_to(PACKAGE).with_suffix("").parts]
        is_package = names[-1] == "__init__"
        found.append(Module(".".join(names[:-1] if is_package else names), path.read_text(encoding="utf-8"), is_package))
    return found


@pytest.mark.parametrize("rule", [order, separation, purity, disk, edge, slow, length])
def test_rule_holds(rule: Rule) -> None:
    complaints = [complaint for module in tree() for complaint in rule(module)]
    assert not complaints, "\n".join(complaints)


def test_no_ring_of_packages() -> None:
    assert cycles(tree()) == []


def test_starting_a_program_loads_nothing_heavy() -> None:
    heavy = [
        "numpy",
        "tqdm",
        "pycurl",
        "uvloop",
        "asyncio",
        "aiodns",
        "selectolax",
        "re2",
        "requests",
        "zstandard",
        "brotli",
        "multiprocessing",
    ]
    modules = [
        m.name
        for m in tree()
        if m.part in ("cli", "console", "master") and m.name not in ("shepherd.cli.__main__", "shepherd.cli.install")
    ]
    script = (
        f"import sys\nfor m in {modules}:\n    __import__(m)\n    print(m, *(h for h in {heavy} if sys.modules.pop(h, None)))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if " " in line] == []


# --- each rule bites --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (order, "shepherd.formats.frame", "import shepherd.store.disk.fsio"),
        (order, "shepherd.urls", "from shepherd.formats.check import check64"),
        (order, "shepherd.store.state.directory", "def f():\n    from shepherd.console import common"),
        (order, "shepherd.store.state.directory", "from ..report import find"),
        (order, "shepherd.reaper.fetch.fetcher", "from shepherd import toyweb"),
        (order, "shepherd.novelty", ""),
        (separation, "shepherd.cycle.plan.rules", "from shepherd.store.state.columns import Table"),
        (separation, "shepherd.cycle.plan.rules", "from ..reaper.fetch import guard"),
        (purity, "shepherd.formats.frame", "import os"),
        (purity, "shepherd.formats.frame", "from pathlib import Path"),
        (purity, "shepherd.cycle.plan.rules", "import time as t"),
        (purity, "shepherd.cycle.plan.rules", "open('x')"),
        (disk, "shepherd.store.state.directory", "import os\nos.rename(a, b)"),
        (disk, "shepherd.store.state.directory", "import os as o\nf = o.fsync"),
        (disk, "shepherd.store.state.directory", "from os import replace as swap\nswap(a, b)"),
        (disk, "shepherd.store.state.directory", "import os.path\nos.unlink(a)"),
        (disk, "shepherd.cli.gather.main", "import shutil\nshutil.rmtree(a)"),
        (disk, "shepherd.cli.gather.main", "path.unlink(missing_ok=True)"),
        (disk, "shepherd.cli.gather.main", "(a / b).rename(c)"),
        (disk, "shepherd.cli.gather.main", "path.replace(c)"),
        (disk, "shepherd.cli.gather.main", "Path(a).rmdir()"),
        (disk, "shepherd.cli.gather.main", "from pathlib import Path\nPath(a).unlink()"),
        (disk, "shepherd.reaper.process.reapd", "self.file.truncate(0)"),
        (edge, "shepherd.store.state.directory", "import time\nnow = time.time()"),
        (edge, "shepherd.store.state.directory", "from time import monotonic\nmonotonic()"),
        (edge, "shepherd.arrays.pool", "import datetime\ndatetime.datetime.now()"),
        (edge, "shepherd.arrays.pool", "from datetime import datetime\ndatetime.now()"),
        (edge, "shepherd.cycle.plan.rules", "import random"),
        (edge, "shepherd.cycle.plan.rules", "import numpy as np\nnp.random.default_rng()"),
        (edge, "shepherd.politeness.groups.memory", "from secrets import token_bytes"),
        (edge, "shepherd.filters", "import os\nos.environ['A']"),
        (edge, "shepherd.filters", "from os import getenv\ngetenv('A')"),
        (slow, "shepherd.cycle.merge.rules", "import numpy as np\nnp.unique(a)"),
        (slow, "shepherd.cycle.merge.rules", "from numpy import unique\nunique(a)"),
        (slow, "shepherd.cycle.merge.rules", "import numpy as np\nnp.argsort(a, order=('norm', 'path'))"),
        (slow, "shepherd.cycle.merge.rules", "records.sort(order='norm')"),
        (length, "shepherd.urls", "x = 1\n" * 401),
    ],
)
def test_rule_catches(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module(name, source)))


@pytest.mark.parametrize(
    ("rule", "name", "source"),
    [
        (
            order,
            "shepherd.store.state.directory",
            "from shepherd.formats import frame\nfrom shepherd.store import names\nfrom . import logs",
        ),
        (order, "shepherd.dispatch.dispatcher", "from shepherd.groups import memory\nfrom shepherd.store import harvest"),
        (order, "shepherd.cli.phases.plan", "from shepherd.cycle.plan import drive"),
        (order, "shepherd.errors", "import shepherd"),
        (separation, "shepherd.cycle.plan.rules", "from shepherd.formats.tables import INDEX"),
        (disk, "shepherd.store.disk.fsio", "import os\nos.rename(a, b)"),
        (disk, "shepherd.store.state.directory", "from shepherd.store import fsio\nfsio.unlink(path)\nfsio.rename(a, b)"),
        (disk, "shepherd.store.state.directory", "text.replace('a', 'b')\nnames.remove(x)\nself.disk.unlink(path)"),
        (disk, "shepherd.store.state.directory", "import dataclasses\ndataclasses.replace(x, a=1)"),
        (disk, "shepherd.store.state.directory", "from dataclasses import replace\nreplace(x, a=1)"),
        (edge, "shepherd.dispatch.dispatcher", "import time\ntime.time()"),
        (edge, "shepherd.config", "import os\nos.environ['A']"),
        (edge, "shepherd.store.state.directory", "import os\nos.getpid()\ntime = 3\nprint(time)"),
        (slow, "shepherd.cycle.merge.rules", "import numpy as np\nnp.argsort(a, kind='stable')\nnp.lexsort((a, b))"),
        (slow, "shepherd.cycle.record.drive", "import numpy as np\nnp.unique(a)"),
        (length, "shepherd.urls", "x = 1\n" * 400),
    ],
)
def test_rule_allows(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module(name, source))) == []


def test_ring_of_packages_is_caught() -> None:
    ring = [Module("shepherd.store.a", "import shepherd.wire.b"), Module("shepherd.wire.b", "import shepherd.store.a")]
    assert cycles(ring)

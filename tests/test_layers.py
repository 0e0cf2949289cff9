"""The dependency rules of the design, checked on the source of shepherd/ with ast.

Each rule is a function from a module to complaints; one test runs it over the tree, and one shows that it bites.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "shepherd"
MOST_LINES = 400

# --- the table ----------------------------------------------------------------------------------------------------
# What all may use lies in shepherd/ itself, and is the room `base`.
BASE = (
    "addresses clock dates domains equiv errors expressions family lines processes"
    " rate robots secrets sections shortage text urls"
)
# Rooms, lowest first. A module imports from rooms of its own line, or of lines above it.
LAYERS: tuple[str, ...] = (
    "base",
    "config",
    "filters",
    "formats",
    "wire store.disk",
    "store.state",
    "reaper.fetch",
    "reaper.document",
    "reaper.process arrays",
    "store.check",
    "readers",
    "politeness",
    "cycle.common",
    "cycle.merge cycle.equiv cycle.select cycle.record cycle.plan cycle.cork"
    " cycle.cleanup cycle.feedback cycle.rank cycle.rebuild",
    "dispatch",
    "importing report",
    "console",
    "client store.mirror",
    "export serve",
    "master",
    "cli",
)
# Beyond the order: what the modules on the left must not import, and what of it they may.
WALLS: tuple[tuple[str, str, str], ...] = (
    ("reaper.*", "dispatch.*", ""),  # hostile bytes are touched on one side of the wire, decisions are made on the other
    ("dispatch.*", "reaper.*", ""),
    ("reaper.*", "store.*", "store.disk.fsio"),
    ("cycle.*", "reaper.* dispatch.* wire.*", ""),
    ("store.*", "arrays.* cycle.* politeness.* readers.*", ""),
)
# Libraries that only some modules may import.
LIBRARIES = {"pycurl": "reaper.fetch.*", "selectolax": "reaper.document.*", "aiodns": "reaper.fetch.*", "toyweb": "cli.*"}
# Here decisions are made by functions over arrays: no paths, no clock, no operating system, no store. Those on the right read and
# write files for them; nobody on the left imports one of those.
PURE = "formats.* arrays.* politeness.* readers.* cycle.*"
WITH_FILES = (
    "arrays.column_spill arrays.partitions arrays.patch arrays.pool arrays.scratch arrays.spill"
    " politeness.manual politeness.server_limits politeness.shared_contacts politeness.site_pauses politeness.strange_ports"
    " readers.reading readers.search readers.segments"
    " cycle.*.drive cycle.common.norms cycle.common.site_table cycle.common.turn"
    " cycle.merge.contributions cycle.merge.requests cycle.merge.sites cycle.merge.waiting cycle.equiv.detect"
    " cycle.plan.judgement cycle.select.passes cycle.select.site_settings cycle.record.thin_buckets"
    " cycle.cork.harvests cycle.cork.site_updates"
    " cycle.cleanup.copy cycle.cleanup.judge cycle.cleanup.mark cycle.cleanup.report cycle.cleanup.survey cycle.cleanup.tombs"
    " cycle.rank.graph cycle.rank.links cycle.rebuild.buckets cycle.rebuild.recover cycle.rebuild.sites"
)
IMPURE_IMPORTS = {"os", "pathlib", "shutil", "tempfile", "glob", "subprocess", "socket", "time", "datetime"}
LEVEL = {room: level for level, rooms in enumerate(LAYERS) for room in rooms.split()}

DISK_MODULES = "store.disk.fsio store.disk.opening store.disk.ops"  # the calls, and the rules by which they are made
DISK_OS = {
    "rename", "renames", "replace", "link", "symlink", "unlink", "remove", "rmdir", "removedirs",
    "truncate", "ftruncate", "fsync", "fdatasync", "sync",
}  # fmt: skip
DISK_SHUTIL = {"rmtree", "move"}
# Methods of paths and files, with the most positional arguments they take: what takes more is a function of fsio.
DISK_METHODS = {"unlink": 0, "rmdir": 0, "rename": 1, "replace": 1, "hardlink_to": 1, "symlink_to": 1, "truncate": 1}

# Who reads the files of a database, and what anybody has left in its inbox; what is mapped is opened in the same place.
NOT_OF_A_DATABASE = "politeness.shared_contacts"  # but of the machine
OPENERS = "store.* arrays.* readers.* politeness.* cycle.* report.*"
OPEN_FUNCTIONS = {
    "os.open", "os.popen", "io.open", "io.FileIO", "io.open_code",
    "numpy.memmap", "numpy.load", "numpy.fromfile", "numpy.loadtxt", "numpy.genfromtxt", "numpy.lib.format.open_memmap",
}  # fmt: skip
OPEN_METHODS = {"read_bytes", "read_text", "write_bytes", "write_text"}

EDGE = "clock config.* wire.* reaper.* dispatch.* importing.* serve.* client.* console.* master.* cli.*"
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
    def local(self) -> str:
        """Its name within the package."""
        return self.name.partition(".")[2]

    @property
    def room(self) -> str:
        return room_of(self.local)

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


def room_of(local: str) -> str:
    """The room of LAYERS that a name belongs to: `store.disk` for store.disk.fsio; "" if there is none."""
    names = local.split(".")
    rooms = [".".join(names[:count]) for count in (2, 1)] + ["base"] * (names[0] in BASE.split())
    return next((room for room in rooms if room in LEVEL), "")


def matches(local: str, globs: str) -> bool:
    """Whether one of the globs means this module; `store.*` means the package itself, too."""
    return any(fnmatchcase(local, glob) or f"{local}.*" == glob for glob in globs.split())


def ours(module: Module) -> Iterator[tuple[int, str]]:
    """Line and name within the package of all of ours that a module imports; names of things as well as of modules."""
    for line, _, full in module.imports:
        package, _, local = full.partition(".")
        if package == "shepherd" and local:
            yield line, local


# --- the rules --------------------------------------------------------------------------------------------------


def order(module: Module) -> Iterator[str]:
    if not module.room:
        if module.local and not module.is_package:
            yield f"{module.name}: belongs to no room"
        return
    for line, local in ours(module):
        room = room_of(local)
        if room and LEVEL[room] > LEVEL[module.room]:
            yield f"{module.name}:{line}: {module.room} must not import {room}, which stands above it"


def walls(module: Module) -> Iterator[str]:
    for importers, forbidden, allowed in WALLS:
        if not matches(module.local, importers):
            continue
        for line, local in ours(module):
            may = allowed and any(local == one or local.startswith(f"{one}.") for one in allowed.split())
            if matches(local, forbidden) and not may and not matches(module.local, forbidden):
                yield f"{module.name}:{line}: {importers} must not import {local}"


def libraries(module: Module) -> Iterator[str]:
    for line, _, full in module.imports:
        only = LIBRARIES.get(full.split(".")[0])
        if only and not matches(module.local, only):
            yield f"{module.name}:{line}: only {only} imports {full}"


def purity(module: Module) -> Iterator[str]:
    if not matches(module.local, PURE) or matches(module.local, WITH_FILES):
        return
    for line, _, full in module.imports:
        if full.split(".")[0] in IMPURE_IMPORTS:
            yield f"{module.name}:{line}: a module that is not in WITH_FILES must not import {full}"
    for line, local in ours(module):
        if matches(local, f"clock clock.* store.* {WITH_FILES}") or any(
            matches(local.rpartition(".")[0], glob) for glob in WITH_FILES.split()
        ):
            yield f"{module.name}:{line}: a module that is not in WITH_FILES must not import {local}"
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            yield f"{module.name}:{node.lineno}: a module that is not in WITH_FILES must not open files"


def disk(module: Module) -> Iterator[str]:
    if matches(module.local, DISK_MODULES):
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


def opening(module: Module) -> Iterator[str]:
    """Files of a database are opened in store/disk/opening.py alone: all else waits for pipes and follows links."""
    if not matches(module.local, OPENERS) or matches(module.local, f"{DISK_MODULES} {NOT_OF_A_DATABASE}"):
        return
    for line, full in module.uses:
        if full in OPEN_FUNCTIONS:
            yield f"{module.name}:{line}: {full} opens a file: opening.open_regular and open_stream do that"
    for node in ast.walk(module.tree):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        is_mode = not node.args or (isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str))
        is_builtin = isinstance(node.func, ast.Name) and node.func.id == "open"
        if is_builtin or name in OPEN_METHODS or (name == "open" and is_mode):
            yield f"{module.name}:{node.lineno}: {name or 'open'}() opens a file: opening.open_regular and open_stream do that"


def edge(module: Module) -> Iterator[str]:
    if matches(module.local, EDGE):
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
    if not matches(module.local, "arrays.* politeness.* readers.* cycle.*") or matches(module.local, WITH_FILES):
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


def rings(modules: list[Module]) -> list[str]:
    """Rooms of one layer may use each other, but not in a ring."""
    graph: dict[str, set[str]] = {}
    for module in modules:
        used = {room_of(local) for _, local in ours(module)} - {module.room, ""}
        graph.setdefault(module.room, set()).update(used)
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


@pytest.mark.parametrize("rule", [order, walls, libraries, purity, disk, opening, edge, slow, length])
def test_rule_holds_of_every_module(rule: Rule) -> None:
    complaints = [complaint for module in tree() for complaint in rule(module)]
    assert not complaints, "\n".join(complaints)


def test_no_ring_of_packages() -> None:
    assert rings(tree()) == []


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
        if m.room in ("cli", "console", "master") and m.name not in ("shepherd.cli.__main__", "shepherd.cli.install")
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
        (order, "shepherd.store.state.directory", "from ...report import find"),
        (libraries, "shepherd.reaper.fetch.fetcher", "import toyweb.run"),
        (order, "shepherd.novelty", ""),
        (order, "shepherd.dispatch.reap", "from shepherd.cli import check"),
        (walls, "shepherd.dispatch.outcome", "from shepherd.reaper.fetch.exchange import error_of"),
        (walls, "shepherd.dispatch.outcome", "def f():\n    from ..reaper import fetch"),
        (walls, "shepherd.reaper.process.worker", "from shepherd.dispatch import verify"),
        (walls, "shepherd.reaper.process.worker", "from shepherd.store.state import inbox"),
        (walls, "shepherd.reaper.process.worker", "from shepherd.store import state"),
        (walls, "shepherd.reaper.document.page", "from shepherd.store.disk import names"),
        (libraries, "shepherd.dispatch.reap", "import pycurl"),
        (libraries, "shepherd.cli.shep.cat", "def f():\n    from selectolax.lexbor import LexborHTMLParser"),
        (libraries, "shepherd.master.daemon", "from toyweb import run"),
        (purity, "shepherd.cycle.plan.rules", "from shepherd.store.state.columns import Table"),
        (purity, "shepherd.cycle.plan.novelty", "from shepherd.store.disk import names"),
        (purity, "shepherd.cycle.plan.rules", "from shepherd.arrays.pool import ordered"),
        (purity, "shepherd.cycle.plan.rules", "from shepherd.cycle.plan import drive"),
        (purity, "shepherd.cycle.plan.rules", "from . import drive"),
        (purity, "shepherd.arrays.keys", "from shepherd.arrays import scratch"),
        (walls, "shepherd.cycle.plan.rules", "from ...reaper.fetch import guard"),
        (purity, "shepherd.formats.frame", "import os"),
        (purity, "shepherd.formats.frame", "from pathlib import Path"),
        (purity, "shepherd.cycle.plan.rules", "import time as t"),
        (purity, "shepherd.cycle.plan.rules", "from shepherd.clock import steady_clock_ms"),
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
        (opening, "shepherd.store.state.logs", "path.open('rb')"),
        (opening, "shepherd.store.state.logs", "(a / b).open()"),
        (opening, "shepherd.store.check.files", "open(path, 'rb')"),
        (opening, "shepherd.store.mirror.drive", "path.read_bytes()"),
        (opening, "shepherd.readers.reading", "(a / b).read_text('ascii')"),
        (opening, "shepherd.arrays.scratch", "import os\nos.open(path, os.O_RDONLY)"),
        (opening, "shepherd.store.state.columns", "import numpy as np\nnp.memmap(path)"),
        (opening, "shepherd.cycle.cork.harvests", "from numpy import fromfile\nfromfile(path)"),
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
            "from shepherd.formats import frame\nfrom shepherd.store.disk import names\nfrom . import logs",
        ),
        (
            order,
            "shepherd.dispatch.dispatcher",
            "from shepherd.politeness.groups import memory\nfrom shepherd.store.state import harvest",
        ),
        (order, "shepherd.cli.phases.plan", "from shepherd.cycle.plan import drive"),
        (order, "shepherd.errors", "import shepherd"),
        (purity, "shepherd.cycle.plan.rules", "from shepherd.formats.tables import INDEX"),
        (purity, "shepherd.cycle.plan.drive", "import os\nfrom shepherd.store.state import columns"),
        (
            walls,
            "shepherd.reaper.process.listener",
            "from shepherd.store.disk import fsio\nfrom shepherd.store.disk.fsio import unlink",
        ),
        (libraries, "shepherd.reaper.fetch.transfer", "import pycurl"),
        (libraries, "shepherd.cli.gather.toy", "from toyweb import run"),
        (disk, "shepherd.store.disk.fsio", "import os\nos.rename(a, b)"),
        (disk, "shepherd.store.state.directory", "from shepherd.store.disk import fsio\nfsio.unlink(path)\nfsio.rename(a, b)"),
        (disk, "shepherd.store.state.directory", "text.replace('a', 'b')\nnames.remove(x)\nself.disk.unlink(path)"),
        (disk, "shepherd.store.state.directory", "import dataclasses\ndataclasses.replace(x, a=1)"),
        (disk, "shepherd.store.state.directory", "from dataclasses import replace\nreplace(x, a=1)"),
        (opening, "shepherd.store.disk.fsio", "import os\nos.open(path, os.O_RDONLY)"),
        (opening, "shepherd.cli.gather.scope", "path.read_text('ascii')"),
        (opening, "shepherd.report.history", "database.open(name)\nself.open(states[0])\nfsio.open_stream(path)"),
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
    ring = [
        Module("shepherd.report.a", "import shepherd.importing.b"),
        Module("shepherd.importing.b", "import shepherd.report.a"),
    ]
    assert rings(ring)

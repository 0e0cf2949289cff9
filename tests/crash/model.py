"""A model of a disk below a cache: what of the recorded calls a power cut may leave, as pessimistic as POSIX allows.

- A sync of a file makes its bytes, length and mode durable, and nothing about its name.
- A sync of a directory makes its names durable: those made, renamed, linked and removed in it so far, and nothing in the files.
- What is not durable may be there or not, each file and each directory for itself, in any order. Of one file's unsynced bytes:
  all kept; all lost; the last extent cut short, zeros or noise; all extents zeros; the truncates undone but not the writes; the
  mode old or new. Of one directory's unsynced names: up to 4, every subset; more, all, none, each lost alone, each kept alone.
- A file or directory that no durable name leads to is gone, with all that is in it.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from shepherd.store.disk import names
from tests.crash.record import Call

CUTS = (0, 1, 512, 4096)  # where an extent may end; and one byte before its end
ALL_SUBSETS = 4  # unsynced names of one directory of which every subset is tried
NEW_MODE = 0o644


@dataclass(frozen=True)
class Content:
    """What is in a file."""

    data: bytes
    mode: int


@dataclass(frozen=True)
class Node:
    """A file or (without content) a directory; hardlinks share the number."""

    number: int
    content: Content | None


Tree: TypeAlias = Mapping[str, Node]  # by path, parents first
Entries: TypeAlias = dict[str, int]  # of a directory: the number behind each name
Change: TypeAlias = tuple[str, str, int]  # a name that goes, a name that comes, the number behind it
View: TypeAlias = Callable[[int], "Content | Entries"]


def read_tree(path: Path) -> Tree:
    """Everything below a directory, without lock files."""
    found: dict[str, Node] = {}

    def walk(directory: Path, prefix: str) -> None:
        for entry in sorted(os.scandir(directory), key=lambda e: e.name):
            inside = prefix + entry.name
            status = entry.stat(follow_symlinks=False)
            if entry.is_dir(follow_symlinks=False):
                found[inside] = Node(status.st_ino, None)
                walk(Path(entry.path), inside + "/")
            elif entry.name != names.LOCK:
                found[inside] = Node(status.st_ino, Content(Path(entry.path).read_bytes(), stat.S_IMODE(status.st_mode)))

    walk(path, "")
    return found


def write_tree(tree: Tree, path: Path) -> None:
    """Make all of it below a new directory."""
    path.mkdir()
    made: dict[int, str] = {}
    for inside, node in tree.items():
        target = f"{path}/{inside}"
        if node.content is None:
            os.mkdir(target)
        elif node.number in made:
            os.link(made[node.number], target)
        else:
            made[node.number] = target
            fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, node.content.mode)
            os.write(fd, node.content.data)
            os.close(fd)


def digest(tree: Tree, out_of_sight: Callable[[str], bool] = lambda path: False) -> bytes:
    """The same for the same disk. What is inside a directory that is out of sight does not count."""
    whole, hidden = hashlib.blake2b(digest_size=16), "\n"
    for path, node in tree.items():
        if path.startswith(hidden):
            continue
        if node.content is None and out_of_sight(path):
            hidden = path + "/"
        what = b"/" if node.content is None else node.content.mode.to_bytes(2, "little") + _bytes_digest(node.content.data)
        whole.update(path.encode() + b"\0" + what)
    return whole.digest()


def _bytes_digest(data: bytes, known: dict[bytes, bytes] = {}) -> bytes:  # noqa: B006 - the cache is meant to last
    if data not in known:
        known[data] = hashlib.blake2b(data, digest_size=16).digest()
    return known[data]


@dataclass
class _File:
    durable: Content
    pending: list[Call] = field(default_factory=list)

    def variants(self) -> list[tuple[str, Content]]:
        """Everything that may be left of it; all kept first, all lost second."""
        if not self.pending:
            return [("kept", self.durable)]
        kept = _after(self.durable, self.pending)
        found = [("kept", kept), ("lost", self.durable)]
        writes = [i for i, call in enumerate(self.pending) if call.op == "write"]
        if writes:
            found += self._torn(writes[-1])
            zeros = [_filled(call, b"\0") if call.op == "write" else call for call in self.pending]
            found.append(("all zeros", _after(self.durable, zeros)))
        if any(call.op == "truncate" for call in self.pending):
            writes_only = [call for call in self.pending if call.op != "truncate"]
            found.append(("truncates undone", _after(self.durable, writes_only)))
        if kept.mode != self.durable.mode:
            found.append(("old mode", Content(kept.data, self.durable.mode)))
            found.append(("new mode, bytes lost", Content(self.durable.data, kept.mode)))
        unique: dict[Content, str] = {}
        for what, content in found:
            unique.setdefault(content, what)
        return [(what, content) for content, what in unique.items()]

    def _torn(self, last: int) -> Iterator[tuple[str, Content]]:
        """Its last unsynced extent in pieces; what came before it is kept."""
        call = self.pending[last]
        for cut in sorted({c for c in (*CUTS, len(call.data) - 1) if 0 <= c < len(call.data)}):
            torn = [*self.pending[:last], _cut(call, cut), *self.pending[last + 1 :]]
            yield f"cut at {cut}", _after(self.durable, torn)
        for what, fill in (("zeros", b"\0"), ("noise", b"\xa5\x5a\xc3")):
            torn = [*self.pending[:last], _filled(call, fill), *self.pending[last + 1 :]]
            yield what, _after(self.durable, torn)


def _cut(call: Call, length: int) -> Call:
    return Call(call.op, call.path, offset=call.offset, data=call.data[:length])


def _filled(call: Call, fill: bytes) -> Call:
    data = (fill * (len(call.data) // len(fill) + 1))[: len(call.data)]
    return Call(call.op, call.path, offset=call.offset, data=data)


def _after(content: Content, calls: list[Call]) -> Content:
    data, mode = bytearray(content.data), content.mode
    for call in calls:
        if call.op == "write":
            if call.data:
                data.extend(bytes(max(0, call.offset - len(data))))
                data[call.offset : call.offset + len(call.data)] = call.data
        elif call.op == "truncate":
            del data[call.number :]
            data.extend(bytes(call.number - len(data)))
        else:
            mode = call.number
    return Content(bytes(data), mode)


@dataclass
class _Directory:
    durable: Entries
    pending: list[Change] = field(default_factory=list)
    now: Entries = field(init=False)  # as a process sees it

    def __post_init__(self) -> None:
        self.now = dict(self.durable)

    def change(self, change: Change) -> None:
        self.pending.append(change)
        self.now = _renamed(self.now, [change])

    def variants(self) -> list[tuple[str, Entries]]:
        """Everything that may be left of its names; all kept first, all lost second."""
        count = len(self.pending)
        everything = tuple(range(count))
        lost: list[tuple[int, ...]] = [(), everything]
        if count <= ALL_SUBSETS:
            lost += [some for size in range(1, count) for some in itertools.combinations(everything, size)]
        else:
            lost += [(i,) for i in everything] + [everything[:i] + everything[i + 1 :] for i in everything]
        unique: dict[frozenset[tuple[str, int]], tuple[str, Entries]] = {}
        for some in lost:
            entries = _renamed(self.durable, [change for i, change in enumerate(self.pending) if i not in some])
            unique.setdefault(frozenset(entries.items()), (self._lost(some), entries))
        return list(unique.values())

    def _lost(self, some: tuple[int, ...]) -> str:
        told = ["/".join(filter(None, self.pending[i][:2])) for i in some[:3]]
        return f"{len(some)} names lost ({', '.join(told)}{' ...' * (len(some) > 3)})" if some else "kept"


def _renamed(entries: Entries, changes: list[Change]) -> Entries:
    left = dict(entries)
    for gone, come, number in changes:
        if gone and come:  # what was renamed has one name, even if the rename before this one was lost
            left = {name: other for name, other in left.items() if other != number}
        left.pop(gone, None)
        if come:
            left[come] = number
    return left


class Disk:
    """The disk and what is still in the cache above it; all of `tree` is durable. `apply` advances by one call."""

    ROOT = 0

    def __init__(self, tree: Tree) -> None:
        self._nodes: dict[int, _File | _Directory] = {self.ROOT: _Directory({})}
        self._next = 1
        numbers: dict[int, int] = {}
        for path, node in tree.items():
            if node.number not in numbers:
                numbers[node.number] = self._add(_Directory({}) if node.content is None else _File(node.content))
            parent, name = self._parent(path)
            parent.durable[name] = parent.now[name] = numbers[node.number]

    def apply(self, call: Call) -> None:
        if call.op in ("write", "truncate", "chmod"):
            node = self._nodes[self._number(call.path)]
            if isinstance(node, _File):
                node.pending.append(call)
            else:  # modes of directories are not modelled: the same stands in it
                assert call.op == "chmod", call
        elif call.op == "sync":
            self._sync(self._number(call.path))
        else:
            self._name(call)

    def _sync(self, number: int) -> None:
        node = self._nodes[number]
        if isinstance(node, _File):
            self._nodes[number] = _File(_after(node.durable, node.pending))
        else:
            self._nodes[number] = _Directory(node.now)

    def _name(self, call: Call) -> None:
        parent, name = self._parent(call.path)
        if call.op in ("create", "mkdir"):
            node = _File(Content(b"", NEW_MODE)) if call.op == "create" else _Directory({})
            parent.change(("", name, self._add(node)))
        elif call.op in ("unlink", "rmdir"):
            parent.change((name, "", 0))
        else:
            target, new = self._parent(call.target)
            assert call.op == "link" or target is parent, f"{call}: a rename between directories is not modelled"
            target.change((name if call.op == "rename" else "", new, self._number(call.path)))

    def _add(self, node: _File | _Directory) -> int:
        self._nodes[self._next] = node
        self._next += 1
        return self._next - 1

    def _number(self, path: str) -> int:
        """What a path leads to now."""
        number = self.ROOT
        for name in path.split("/") if path != "." else ():
            node = self._nodes[number]
            assert isinstance(node, _Directory)
            number = node.now[name]
        return number

    def _parent(self, path: str) -> tuple[_Directory, str]:
        parent, _, name = path.rpartition("/")
        node = self._nodes[self._number(parent or ".")]
        assert isinstance(node, _Directory)
        return node, name

    # --- what may be left

    def number_of(self, path: str) -> int:
        return self._number(path)

    def uncertain(self) -> list[int]:
        """The files and directories that a power cut may leave in more than one way."""
        return [number for number, node in self._nodes.items() if node.pending]

    def visible(self, out_of_sight: Callable[[str], bool]) -> set[int]:
        """The files and directories that some name may lead to, kept or lost, without passing one that is out of sight."""
        found, left = {self.ROOT}, [self.ROOT]
        while left:
            node = self._nodes[left.pop()]
            assert isinstance(node, _Directory)
            names_of = [*node.durable.items(), *((come, number) for _gone, come, number in node.pending if come)]
            for name, number in names_of:
                if number not in found and not out_of_sight(name):
                    found.add(number)
                    left += [number] if isinstance(self._nodes[number], _Directory) else []
        return found

    def variants(self, number: int) -> list[tuple[str, Content | Entries]]:
        return list(self._nodes[number].variants())

    def tree(self, everything_kept: bool, chosen: Mapping[int, Content | Entries] | None = None) -> Tree:
        """The disk with all unsynced things kept or lost, but for those that are chosen."""
        found: dict[str, Node] = {}
        chosen = chosen or {}

        def walk(number: int, prefix: str) -> None:
            directory = self._nodes[number]
            assert isinstance(directory, _Directory)
            entries = chosen.get(number, directory.now if everything_kept else directory.durable)
            assert isinstance(entries, dict)
            for name, below in sorted(entries.items()):
                node = self._nodes[below]
                if isinstance(node, _Directory):
                    found[prefix + name] = Node(below, None)
                    walk(below, f"{prefix}{name}/")
                    continue
                content = chosen.get(below)
                if content is None:
                    content = _after(node.durable, node.pending) if everything_kept and node.pending else node.durable
                assert isinstance(content, Content)
                found[prefix + name] = Node(below, content)

        walk(self.ROOT, "")
        return found

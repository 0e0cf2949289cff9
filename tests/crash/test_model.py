"""The disk that the power cuts are made with: it forgets what a disk may forget, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import sweep
from tests.crash.model import NEW_MODE, Content, Node, Tree, digest, read_tree, write_tree
from tests.crash.oracle import Facts
from tests.crash.record import Call, ForgetfulRecorder
from tests.crash.replay import Run, Stage, cuts, cuts_of
from tests.crash.workloads import WORKLOADS

ROOT = "."


def file(number: int, data: bytes, mode: int = NEW_MODE) -> Node:
    return Node(number, Content(data, mode))


def left(*calls: Call, base: Tree | None = None) -> set[str]:
    """What may be left after all of these calls: names, and the bytes behind them."""
    run = Run(base or {}, calls, ((0, Facts()),))
    return {shown(cut.tree) for cut in cuts(run, len(calls))}


def shown(tree: Tree) -> str:
    return " ".join(
        path + ("/" if node.content is None else f"={node.content.data.decode('latin-1')}") for path, node in tree.items()
    )


def made(path: str, data: bytes) -> tuple[Call, ...]:
    """A new file, synced; its name is not."""
    return Call("create", path), Call("write", path, data=data), Call("sync", path)


def test_name_is_not_durable_because_its_file_is() -> None:
    assert left(*made("a", b"xyz")) == {"", "a=xyz"}
    assert left(*made("a", b"xyz"), Call("sync", ROOT)) == {"a=xyz"}


def test_bytes_are_not_durable_because_their_name_is() -> None:
    found = left(Call("create", "a"), Call("write", "a", data=b"xyz"), Call("sync", ROOT))
    assert found == {"a=xyz", "a=", "a=x", "a=xy", "a=\0\0\0", "a=\xa5\x5a\xc3"}


def test_extent_is_cut_at_the_borders_of_sectors_and_pages() -> None:
    found = left(Call("write", "a", data=b"x" * 5000), base={"a": file(1, b"")})
    assert {len(disk) - 2 for disk in found} == {0, 1, 512, 4096, 4999, 5000}


def test_synced_bytes_outlive_the_loss_of_those_behind_them() -> None:
    first, second = Call("write", "a", data=b"one"), Call("write", "a", offset=3, data=b"two")
    found = left(first, Call("sync", "a"), second, base={"a": file(1, b"")})
    assert all(disk.startswith("a=one") for disk in found)
    assert {"a=one", "a=onetw", "a=onetwo", "a=one\0\0\0"} <= found


def test_rename_may_be_undone_until_its_directory_is_synced() -> None:
    base = {"a": file(1, b"new"), "b": file(2, b"old")}
    assert left(Call("rename", "a", "b"), base=base) == {"b=new", "a=new b=old"}
    assert left(Call("rename", "a", "b"), Call("sync", ROOT), base=base) == {"b=new"}


def test_rename_of_what_was_renamed_never_leaves_two_directories() -> None:
    base = {"a": Node(1, None), "a/x": file(2, b"")}
    assert left(Call("rename", "a", "b"), Call("rename", "b", "c"), base=base) == {"a/ a/x=", "b/ b/x=", "c/ c/x="}


def test_any_of_several_names_may_be_lost() -> None:
    found = left(*made("a", b""), *made("b", b""), *made("c", b""))
    assert found == {"", "a=", "b=", "c=", "a= b=", "a= c=", "b= c=", "a= b= c="}


def test_of_many_names_each_may_be_lost_and_each_kept_alone() -> None:
    found = left(*(call for name in "abcdefgh" for call in made(name, b"")))
    assert {len(disk.split()) for disk in found} == {0, 1, 7, 8}
    assert len(found) == 8 + 8 + 2


def test_removed_name_may_come_back_with_all_below_it() -> None:
    base = {"d": Node(1, None), "d/a": file(2, b"x")}
    calls = Call("unlink", "d/a"), Call("rmdir", "d")
    assert left(*calls, base=base) == {"", "d/", "d/ d/a=x"}
    assert left(*calls, Call("sync", ROOT), base=base) == {""}


def test_what_was_synced_in_a_lost_directory_is_lost_with_it() -> None:
    assert left(Call("mkdir", "d"), *made("d/a", b"x"), Call("sync", "d")) == {"", "d/ d/a=x"}


def test_hardlinks_lose_the_same_bytes() -> None:
    found = left(Call("write", "a", data=b"x"), Call("link", "a", "b"), Call("sync", ROOT), base={"a": file(1, b"")})
    assert found == {"a=x b=x", "a= b=", "a=\0 b=\0", "a=\xa5 b=\xa5"}


def test_truncate_may_be_undone_below_what_was_written_after_it() -> None:
    base = {"a": file(1, b"abcdef")}
    found = left(Call("truncate", "a", number=2), Call("write", "a", offset=2, data=b"x"), base=base)
    assert {"a=abx", "a=abcdef", "a=abxdef", "a=ab"} <= found


def test_mode_is_not_durable_without_a_sync_of_the_file() -> None:
    run = Run({"a": file(1, b"x")}, (Call("chmod", "a", number=0o444),), ((0, Facts()),))
    contents = [cut.tree["a"].content for cut in cuts(run, 1)]
    assert {content.mode for content in contents if content} == {NEW_MODE, 0o444}


# --- the recorder -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
def test_recorded_calls_make_what_is_really_there(name: str, memory: Path) -> None:
    (memory / "stage").mkdir()
    WORKLOADS[name].prepare(memory / "stage")
    run = Stage(memory / "stage").play(WORKLOADS[name].play)
    there = read_tree(memory / "stage")
    assert digest(run.killed_at(len(run.log))) == digest(there)
    write_tree(there, memory / "copy")
    assert digest(read_tree(memory / "copy")) == digest(there)


def test_forgotten_sync_is_the_same_as_one_removed_from_the_log(memory: Path) -> None:
    whole = sweep.record(WORKLOADS["harvest"], memory)
    for ordinal in (1, 9, len(whole.syncs())):
        stage = memory / str(ordinal)
        stage.mkdir()
        WORKLOADS["harvest"].prepare(stage)
        run = Stage(stage, recorder=ForgetfulRecorder(stage, ordinal)).play(WORKLOADS["harvest"].play)
        place = whole.syncs()[ordinal - 1]
        assert run.log == whole.forgetting({place}).log
        assert [at for at, _facts in run.settled] == [at for at, _facts in whole.forgetting({place}).settled]
        assert list(cuts_of(run, place, whole.log[place].path)) or ordinal == 1

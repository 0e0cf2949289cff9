"""Selectors, by `shep list`: each option beside a loop over what the database was made of, and all of them together."""

from __future__ import annotations

import fnmatch
import itertools
import random
from collections.abc import Callable

import numpy as np
import pytest

from shepherd.console import selection_rows as selected
from shepherd.console import selector_words
from shepherd.console.selectors import Selection
from shepherd.formats.tables import RowType
from shepherd.readers import search
from shepherd.urls import qkey_of_address
from tests.support.page_states import PAGES, Herd, Page, Run, Site, make_herd, objects, stdout_of
from tests.worlds import DAY, NOW

WORDS = ("pear", "plum")


def listed(shep: Run, herd: Herd, *args: str) -> set[str | None]:
    return {row["url"] for row in objects(shep(herd, "list", "--json", "--now", str(NOW), *args))}


def like(is_meant: Callable[[Page], bool]) -> set[str | None]:
    return {page.url if page.bucket else None for page in PAGES if is_meant(page)}


def of(page: Page, column: str) -> int:
    return page.columns.get(column, 0)


@pytest.mark.parametrize(
    ("args", "is_meant"),
    [
        (["--status", "4xx"], lambda page: of(page, "status") // 100 == 4),
        (["--status", "404", "--status", "301"], lambda page: of(page, "status") in (404, 301)),
        (["--older", "36h"], lambda page: of(page, "checked") and NOW - of(page, "checked") > 36 * 3_600),
        (["--newer", "1d"], lambda page: of(page, "checked") and NOW - of(page, "checked") <= DAY),
        (["--newer", "2d", "--older", "1d"], lambda page: DAY < NOW - of(page, "checked") <= 2 * DAY),
        (["--weight", "40000..49000"], lambda page: 40_000 <= of(page, "weight") <= 49_000),
        (["--weight", "..7"], lambda page: of(page, "weight") <= 7),
        (["--weight", "50000.."], lambda page: of(page, "weight") >= 50_000),
        (["--server", "127.0.0.7"], lambda page: page.url.startswith("http://a.example/")),
        (["--server", "127.0.0.8"], lambda page: False),
        (["--section", "none", "--type", "error"], lambda page: page.type == RowType.ERROR),
        (["--section", "pdf"], lambda page: False),
        (["--glob", "*/p*"], lambda page: fnmatch.fnmatchcase(page.url, "*/p*")),
        (
            ["--glob", "*o?*", "--type", "error"],
            lambda page: page.type == RowType.ERROR and fnmatch.fnmatchcase(page.url, "*o?*"),
        ),
        (["--glob", "https://www.b.example/*"], lambda page: page.url.startswith("https://www.b.")),
        (["--glob", "https://b.example/*"], lambda page: False),
        (["--site", "b.example", "--glob", "http*e"], lambda page: "b.example" in page.url),
        (["http://a.example/gone", "http://a.example/dead", "--status", "410"], lambda page: page.url.endswith("dead")),
        (["http://a.example/gone", "--site", "b.example"], lambda page: False),
    ],
)
def test_option_chooses_what_a_loop_chooses(herd: Herd, shep: Run, args: list[str], is_meant: Callable[[Page], bool]) -> None:
    assert listed(shep, herd, *args) == like(is_meant)


def test_list_of_urls_and_what_is_unknown_in_it(herd: Herd, shep: Run) -> None:
    lines = b"# mine\nhttp://a.example/gone?utm_source=x\n\nhttp://a.example/nobody\nhttp://a.example/dead\nftp://a/\n"
    answer = shep(herd, "list", "--json", "-f", "-", stdin=lines)
    assert {row["url"] for row in objects(answer, 2)} == {"http://a.example/gone", "http://a.example/dead"}
    assert b"stdin:4: http://a.example/nobody: not known" in answer.stderr
    assert b"stdin:6: ftp://a/: " in answer.stderr and b"only http and https" in answer.stderr
    assert b"2 URLs cannot be listed" in answer.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--older", "3"], b"30d"),
        (["--status", "4x"], b"4xx"),
        (["--weight", "9..3"], b"MIN..MAX"),
        (["--weight", "70000"], b"MIN..MAX"),
        (["--weight", ""], b"MIN..MAX"),
        (["--server", "a.example"], b"192.0.2.7"),
        (["--section", "pfd"], b"pdf"),
        (["--glob", "a.example/*"], b"begins with http://"),
        (["--reason", "nothing"], b"robots-denied"),
    ],
)
def test_invalid_selector_is_refused_with_what_is_allowed(herd: Herd, shep: Run, args: list[str], words: bytes) -> None:
    answer = shep(herd, "list", *args)
    assert answer.returncode == 2 and words in answer.stderr, answer


def test_server_as_it_is_shown(herd: Herd, shep: Run) -> None:
    with herd.store.reading("test", NOW * 1_000) as state:
        from shepherd.formats.tables import show_qkey

        shown = {show_qkey(qkey) for qkey in state.sites["qkey"][0 : state.sites.rows].tolist()}
    assert len(shown) == 3
    assert set.union(*(listed(shep, herd, "--server", one) for one in shown)) == {
        page.url if page.bucket else None for page in PAGES
    }


def test_words_are_those_that_would_choose_the_same() -> None:
    """The log of changes shows them."""
    selection = Selection(
        site="a.example",
        server=qkey_of_address("192.0.2.7"),
        statuses=(range(400, 500), range(404, 405)),
        sections=(3, 40),
        older=86_400,
        weights=(7, 65_535),
        glob="*.pdf",
    )
    words = selection.words()
    assert " ".join(words) == (
        "--site a.example --server 192.0.2.7 --status 4xx --status 404 --section pdf --section 40 "
        "--older 86400s --weight 7..65535 --glob *.pdf"
    )
    assert selector_words.read_age("86400s") == 86_400 and selector_words.read_weights("7..65535") == (7, 65_535)


def test_many_sites_of_a_server_and_a_search_in_groups(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small steps: ranges are cut, norms are looked up together, and a search goes over the columns more than once."""
    names = [f"http://s{n}.example" for n in range(40)]
    large = random.Random(1).randbytes(300_000)  # so that there are several segments
    pages = [Page(f"{name}/{word}{n}", body=large if n == 2 else None) for name in names for n in range(5) for word in WORDS]
    sites = [Site(name, {"qkey": qkey_of_address(f"192.0.2.{n % 3}")}) for n, name in enumerate(names)]
    herd = make_herd(tmp_path_factory.mktemp("many"), pages, sites)
    monkeypatch.setattr(selected, "STEP_ROWS", 7)
    monkeypatch.setattr(selected, "FEW_NORMS", 3)
    monkeypatch.setattr(search, "GROUP_ROWS", 50)
    with herd.store.reading("test", NOW * 1_000) as state:
        assert len(state.segments()) > 10

        def urls(**asked: object) -> list[str]:
            parts = list(selected.selected_rows(state, Selection(**asked)))  # type: ignore[arg-type]
            return sorted((url or b"").decode() for part in parts for url in search.urls_of(state, part))

        mine = [name for n, name in enumerate(names) if n % 3 == 1]
        assert urls() == sorted(page.url for page in pages)
        server = qkey_of_address("192.0.2.1")
        assert urls(server=server) == sorted(page.url for page in pages if page.url.rpartition("/")[0] in mine)
        plums = sorted(f"{name}/plum{n}" for name, n in itertools.product(mine, (3, 4)))
        assert urls(server=server, glob="*/plum[34]") == []
        assert urls(server=server, glob="*/plum*") == sorted(f"{name}/plum{n}" for name, n in itertools.product(mine, range(5)))
        assert [url for url in urls(server=server, glob="*plum?") if url[-1] in "34"] == plums
        oids = [state.index["oid"].take(part) for part in selected.selected_rows(state, Selection(glob="*pear*"))]
        assert (np.diff(np.concatenate(oids).astype(np.int64)) > 0).all()


def test_help_names_every_type_of_row(herd: Herd, shep: Run) -> None:
    text = stdout_of(shep(herd, "list", "--help"))
    assert all(name in text for name in ("sleeping", "--glob", "MIN..MAX", "5xx", "30d"))

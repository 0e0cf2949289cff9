"""The other formats: each read back, by our own readers or by those of the format."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shepherd.errors import BadUrl
from shepherd.export.safe_names import file_path
from shepherd.formats import stream
from shepherd.urls import parse
from tests.support.export_pages import LONG, READERS, ROOT, WARES, bodies, export, lines, names, page, reader
from tests.support.page_states import Herd, make_herd

REDIRECT, ROBOTS = "https://a.example/moved", "https://a.example/robots.txt"


@pytest.fixture(scope="module")
def herd(tmp_path_factory: pytest.TempPathFactory) -> Herd:
    return make_herd(tmp_path_factory.mktemp("herd"), WARES, (), ())


CODECS = {"https://a.example/thai": "cp874"}  # by URL, where it is not UTF-8


def documents() -> dict[str, bytes]:
    return {url: body for url, body in bodies().items() if url not in (REDIRECT, ROBOTS)}


def test_json_lines_have_every_body_and_fact(herd: Herd, tmp_path: Path) -> None:
    export(herd, tmp_path, "--format", "jsonl", "--robots", "--redirects")
    seen = {one["url"]: one for one in lines(tmp_path / "shepherd-000002-00000.jsonl")}
    assert seen.keys() == bodies().keys()
    for url, body in bodies().items():
        one = seen[url]
        assert (one["body"].encode(CODECS.get(url, "utf-8")) if "body" in one else base64.b64decode(one["body_base64"])) == body
    assert "body" in seen["https://a.example/thai"] and "body_base64" in seen["https://a.example/code"]  # no charset of the web
    assert seen["https://a.example/long"].keys() >= {"body_base64"} and LONG
    first = seen["https://a.example/"]
    assert first["title"] == "Schafe" and first["status"] == 200 and first["headers"][0][0] == "Content-Type"
    assert seen[REDIRECT]["redirect"].startswith("https://www.b.example:8443/") and "body" not in seen[REDIRECT]


def test_stdout_has_the_bytes_of_a_file(herd: Herd, tmp_path: Path) -> None:
    for kind in ("jsonl", "buckets", "stream"):
        export(herd, tmp_path, "--format", kind, "--prefix", kind)
        assert export(herd, "-", "--format", kind).stdout == (tmp_path / f"{kind}-000002-00000.{kind}").read_bytes()


def test_list_of_buckets_leads_to_them(herd: Herd, tmp_path: Path) -> None:
    export(herd, tmp_path, "--format", "buckets")
    titles, *rows = [line.split("\t") for line in (tmp_path / "shepherd-000002-00000.buckets").read_text().splitlines()]
    state = herd.store.closed()
    found = [dict(zip(titles, row, strict=True)) for row in rows]
    assert {row["url"] for row in found} == documents().keys()
    for row in found:
        assert state.objects.get(int(row["oid"], 16)).url == row["url"] and row["weight"] == "50000"


def test_stream_in_a_file_reads_back(herd: Herd, tmp_path: Path) -> None:
    export(herd, tmp_path, "--format", "stream", "--split-bytes", "1000")
    seen: dict[str, bytes] = {}
    for path in sorted(tmp_path.glob("*.stream")):
        data = io.BytesIO(path.read_bytes())
        for item in stream.items(data.read):
            seen[item.bucket().url] = item.bucket().body()
        assert not data.read()
    assert seen == documents()


def test_tree_and_tar_contain_the_bodies(herd: Herd, tmp_path: Path) -> None:
    export(herd, tmp_path, "--format", "files", "--prefix", "tree")
    export(herd, tmp_path, "--format", "tar.gz", "--prefix", "tar")
    tree = {
        one["url"]: (tmp_path / "tree-000002" / one["path"]).read_bytes() for one in lines(tmp_path / "tree-000002.files.jsonl")
    }
    assert tree == documents()
    assert (tmp_path / "tree-000002" / "a.example" / "index~.html").is_file()
    packed = {}
    for one in lines(tmp_path / "tar-000002.files.jsonl"):
        with tarfile.open(tmp_path / one["file"]) as tar:
            member = tar.extractfile(one["path"])
            assert member is not None
            packed[one["url"]] = member.read()
    assert packed == documents()


def test_split_tar_files_can_be_read(tmp_path: Path) -> None:
    noise = [random.Random(n).randbytes(100_000) for n in range(3)]
    herd = make_herd(tmp_path / "herd", [page(f"https://a.example/{n}", body) for n, body in enumerate(noise)], (), ())
    export(herd, tmp_path, "--format", "tar.gz", "--split-bytes", "50000")
    found = set()
    for path in sorted(tmp_path.glob("*.tar.gz")):
        with tarfile.open(path) as tar:
            found |= {one.name for one in tar}
    assert len(found) == 3 and len(list(tmp_path.glob("*.tar.gz"))) > 1


PLAIN = ["a", "A", ".", "..", "", "~", "a~", "a.b", "a.b~", "a~f", "é", "\\", "x" * 300, "CON", "-", ".a", " "]
ESCAPES = ["%2e%2e", "%2F", "%2Ea", "%252Ea", "%7E", "a%7E", "%20", "%2520", "%C3%A9"]
PIECES = st.sampled_from(PLAIN + ESCAPES)
HOSTS = ["h.example", "h.example:81", "[::1]", "1.2.3.4", "h.example,81", "h.example,http", "h!example", "h~example", "h_example"]
DOTTED_HOSTS = ["..", ".", "...", ".x", "%2e.", "___1_", "..:81"]
URLS = st.builds(
    lambda scheme, host, parts, query: f"{scheme}://{host}/{'/'.join(parts)}{query}",
    st.sampled_from(["http", "https"]),
    st.sampled_from(HOSTS + DOTTED_HOSTS),
    st.lists(PIECES, max_size=8),
    st.sampled_from(["", "?", "?q=/../x", "?" + "y" * 900]),
)


@given(st.lists(URLS, min_size=2, max_size=12, unique=True))
def test_every_file_lies_within_the_tree_at_a_path_of_its_own(urls: list[str]) -> None:
    paths: dict[str, str] = {}
    for text in urls:
        try:
            url = parse(text).href
        except BadUrl:
            continue
        path = file_path(url, True)
        parts = path.split("/")
        assert not path.startswith("/") and all(part and part not in (".", "..") and len(part) <= 160 for part in parts)
        assert paths.setdefault(path, url) == url
    files = set(paths)
    for path in paths:  # no file is a directory of another
        above = path
        while above := above.rpartition("/")[0]:
            assert above not in files


@pytest.mark.parametrize("format_", ["files", "tar.gz"])
def test_host_of_dots_stays_in_the_tree(tmp_path: Path, format_: str) -> None:
    pages = [page(parse(f"https://{host}/pwned.html").href, host.encode()) for host in (*DOTTED_HOSTS, "[::1]")]
    herd = make_herd(tmp_path / "herd", list({one.url: one for one in pages}.values()), (), ())
    out = tmp_path / "out"
    export(herd, out, "--format", format_)
    paths = [one["path"] for one in lines(out / "shepherd-000002.files.jsonl")]
    assert len(set(paths)) == len({one.url for one in pages}) and not any(path.startswith((".", "/")) for path in paths)
    assert all(name.startswith("shepherd-000002") for name in names(out))


@pytest.mark.parametrize("url", ["https:///../x", "https://:80//x", "https://u:p@../x", "https://é/../x", "https://[/../x", ""])
def test_invalid_url_stays_in_the_tree(url: str) -> None:
    """A server that lies sends buckets with any text as their URL."""
    parts = file_path(url, True).split("/")
    assert all(part and part not in (".", "..") for part in parts)


# --- choosing ---------------------------------------------------------------------------------------------------


def chosen(herd: Herd, *arguments: str, status: int = 0) -> set[str]:
    done = export(herd, "-", "--format", "jsonl", "--no-body", *arguments, status=status)
    return {json.loads(line)["url"] for line in done.stdout.splitlines()}


def test_selectors_choose_documents(herd: Herd) -> None:
    assert chosen(herd, "https://a.example/cut") == {"https://a.example/cut"}
    assert chosen(herd, "--site", "b.example:8443") == {"https://www.b.example:8443/Path%20with/Blanks/"}
    assert chosen(herd, "--glob", "*://a.example/*t") == {"https://a.example/as-sent", "https://a.example/cut"}
    assert len(chosen(herd, "--best", "3")) == 3 and chosen(herd, "--weight", "..49999") == set()
    assert chosen(herd, "--type", "sleeping") == set()
    parts = [chosen(herd, "--part", f"{n}/3") for n in (1, 2, 3)]
    assert set.union(*parts) == documents().keys() and sum(map(len, parts)) == len(documents())
    assert chosen(herd, "https://nowhere.example/", status=2) == set()


def test_dry_run_counts_right_and_writes_nothing(herd: Herd, tmp_path: Path) -> None:
    done = export(herd, tmp_path, "--format", "warc", "--dry-run", "--json")
    assert json.loads(done.stdout)["counts"]["documents"] == len(bodies()) and not names(tmp_path)


@pytest.mark.parametrize(
    "arguments",
    [
        ["--format", "warc", "-o", "-"],
        ["--format", "jsonl", "--cdxj"],
        ["--format", "jsonl", "-o", "-", "--cursor", "a"],
        ["--format", "jsonl", "--cursor", "../a"],
        ["--format", "jsonl", "--prefix", "../a"],
        ["--format", "jsonl", "--part", "3/2"],
        ["--format", "jsonl", "--since", "1", "--status", "200"],
        ["--format", "jsonl", "--since", "7"],
        ["--format", "jsonl", "-o", "/nowhere/at/all"],
    ],
)
def test_impossible_combination_is_refused(herd: Herd, tmp_path: Path, arguments: list[str]) -> None:
    export(herd, tmp_path, *arguments, status=2)
    assert not names(tmp_path)


# --- Parquet ----------------------------------------------------------------------------------------------------


def test_missing_pyarrow_is_reported_with_its_remedy(herd: Herd, tmp_path: Path) -> None:
    (tmp_path / "pyarrow.py").write_text("raise ImportError('no such thing')")
    done = _with_packages(herd, tmp_path, tmp_path, "--format", "parquet")
    assert (
        done.returncode == 2
        and f"pip --python {sys.executable} install 'pyarrow" in done.stderr
        and names(tmp_path) == ["pyarrow.py"]
    )


def _with_packages(herd: Herd, packages: Path, out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """As where pyarrow is installed: it is in the venv of the readers."""
    environment = os.environ | {"PYTHONPATH": f"{ROOT}:{packages}", "SHEPHERD_DB": str(herd.db), "SHEPHERD_CF": str(herd.cf)}
    command = [sys.executable, "-B", "-m", "shepherd.cli", "shep-export", "-o", str(out), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_duckdb_and_pandas_can_read_parquet(herd: Herd, tmp_path: Path) -> None:
    reader("python", "-c", "import pyarrow")
    packages = next((READERS.parent / "lib").glob("python3*")) / "site-packages"
    for kind in ("parquet", "parquet-urls"):
        done = _with_packages(herd, packages, tmp_path, "--format", kind)
        assert done.returncode == 0, done
    script = """
import sys, json, duckdb, pandas
documents, urls = sys.argv[1:]
frame = pandas.read_parquet(documents)
columns = "url, status, weight, title, body, epoch(gathered)"
rows = duckdb.sql(f"select {columns} from read_parquet('{documents}') order by url").fetchall()
known = duckdb.sql(f"select type, count(*), count(url) from read_parquet('{urls}') group by type order by type").fetchall()
rows = [[*row[:4], row[4].hex(), row[5]] for row in rows]
print(json.dumps([sorted(frame.url), rows, known, len(pandas.read_parquet(urls))]))
"""
    told = reader(
        "python", "-c", script, tmp_path / "shepherd-000002-00000.parquet", tmp_path / "shepherd-000002-urls-00000.parquet"
    )
    in_pandas, rows, known, count = json.loads(told)
    assert in_pandas == sorted(documents()) and {row[0]: bytes.fromhex(row[4]) for row in rows} == documents()
    assert rows[0][1:4] == [200, 50000, "Schafe"] and rows[0][5] == 1789740800
    assert known == [["gathered", 13, 13], ["sleeping", 1, 1]] and count == 14

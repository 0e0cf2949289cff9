"""What a reap reports of its servers, from a real one."""

from __future__ import annotations

import json
from pathlib import Path

from tests.support.origin import Answer, ok
from tests.support.reaping import planned


def test_table_has_a_line_for_every_server(tmp_path: Path) -> None:
    pages: dict[str, Answer] = {
        f"{host}.example/{number}": ok(b"<p>page", "Content-Type: text/html") for host in "abc" for number in range(2)
    }
    urls = [f"http://{page}" for page in pages]
    with planned(tmp_path, pages, [*urls, "http://c.example/none"], [], servers=3) as made:
        refused = made.run("shep-reap", "--servers", str(tmp_path / "nowhere" / "table"))
        assert (refused.returncode, "is not a directory" in refused.stderr) == (2, True), refused.stderr
        report = json.loads(made.must("shep-reap", "-q", "--json", "--servers", str(tmp_path / "table")))
        lines = [json.loads(line) for line in (tmp_path / "table").read_text().splitlines()]
        assert [one["server"] for one in lines] == ["127.0.4.1", "127.0.4.2", "127.0.4.3"]
        assert sum(one["contacts"] for one in lines) == sum(report["statuses"].values())
        assert report["servers_by_contacts"] == {"2-9": 3}
        assert (report["statuses"]["200"], report["errors"]["client-error"]) == (6, 4)  # three of them robots files
        made.must("shep-cork", "-q")
        closed = json.loads((made.db / "state" / "000003" / "report.json").read_text())
        assert (closed["statuses"], closed["errors"]) == (report["statuses"], report["errors"])

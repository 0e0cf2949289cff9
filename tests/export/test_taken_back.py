"""What is exported as WARC and imported again is the same documents."""

from __future__ import annotations

import os
from pathlib import Path

from shepherd.formats.tables import RowType
from shepherd.store.state.database import Database
from tests.support.export_pages import ROOT, WARES, export
from tests.support.page_states import make_herd
from tests.support.programs import call_bytes
from tests.worlds import KEY, NOW

# A resource is no answer of a server, and a page that says nothing is not kept by an import.
TAKEN = [
    ware for ware in WARES if ware.type == RowType.GATHERED and ware.body and "S" in ware.attributes and "D" in ware.attributes
]


def test_import_of_an_export_gives_the_same_documents(tmp_path: Path) -> None:
    herd = make_herd(tmp_path / "herd", WARES, (), ())
    export(herd, tmp_path, "--format", "warc")
    Database.create(tmp_path / "db", KEY, NOW)
    environment = os.environ | {"PYTHONPATH": str(ROOT), "SHEPHERD_DB": str(tmp_path / "db"), "SHEPHERD_CF": str(herd.cf)}
    done = call_bytes(
        ["shep-import", "--now", str(NOW + 60), str(tmp_path / "shepherd-000002-00000.warc.gz")], tmp_path, environment
    )
    assert done.returncode == 0, done
    before = {one.url: one for one in herd.store.closed().documents()}
    after = {one.url: one for one in Database(tmp_path / "db").closed().documents()}
    assert after.keys() == {ware.url for ware in TAKEN} | {"https://a.example/empty"} & after.keys()
    for ware in TAKEN:
        old, new = before[ware.url], after[ware.url]
        assert new.body() == old.body() == ware.body, ware.url
        for name in ("status", "digest", "norm", "path", "site"):
            assert new.columns[name] == old.columns[name], (ware.url, name)
        assert new.bucket.header.time_ms == old.bucket.header.time_ms
        for letter in ("A", "D"):
            assert new.bucket.attributes.get(letter) == old.bucket.attributes.get(letter), (ware.url, letter)

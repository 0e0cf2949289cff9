"""A database of several partitions with work for every phase: a harvest that has ended, contributions, feedback, and two sites
that are to be one."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from shepherd.store.state.database import Database

ROOT = Path(__file__).resolve().parents[2]
ROWS = 6_000  # sorts of a few elements are the same everywhere
NOW = 1_790_003_600  # as bench/makedb says
CF = f"""
[store]
partition_rows = {ROWS // 4}
[select]
gathered = {ROWS * 4 // 9}
sleeping = {ROWS * 4 // 9}
site_soft = {ROWS // 40}
site_hard = {ROWS // 30}
[plan]
max_pages = {ROWS // 8}
[cleanup]
reserve_bytes = 0
sparse = 99
"""


def make(home: Path, settings: str = CF) -> Path:
    """The database is `home/db`, its configuration `home/cf`."""
    inputs = ["--buckets", "--journal", str(ROWS // 4), "--contributions", str(ROWS), "--feedback", str(ROWS // 3)]
    (home / "cf").mkdir()
    shutil.copy(ROOT / "cf" / "filter", home / "cf" / "filter")
    (home / "cf" / "shepherd.toml").write_text(settings)
    command = [sys.executable, "bench/makedb", str(ROWS), str(home / "db"), *inputs, "--filter", str(home / "cf" / "filter")]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    made = Database(home / "db")
    made.inbox.drop_feedback(made.new_item_name(NOW * 1000), (home / "db.feedback").read_bytes())
    state = made.closed()
    largest = sorted(range(state.sites.rows), key=lambda row: int(state.sites["documents"][row : row + 1][0]), reverse=True)
    hosts = (state.site_name(row).rpartition("/")[2].removeprefix("www.") for row in largest)
    (home / "cf" / "url-equiv").write_text(" ".join(list(dict.fromkeys(hosts))[:2]) + "\n")
    return home

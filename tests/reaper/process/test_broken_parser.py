"""What hostile bytes could do next that have taken over a parser: tried from inside a worker, and refused by the system.

The worker is that of a reapd whose parser does whatever a page says, which root has started as docs/operations.md has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.store.state.database import Database
from tests.support.driver import HTML, fetch_once, run
from tests.support.origin import ok, serve
from tests.support.reaping import ROOT
from tests.support.waiting import is_listening, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root has something to give up")
REAPD = """
import ctypes, json, mmap, resource, subprocess, sys, time  # Python's files may be out of a worker's reach
from pathlib import Path
from shepherd.addresses import UnixAddress
from shepherd.reaper.document import extract
from shepherd.reaper.process import reapd
from shepherd.reaper.process.limits import WorkerLimits
whole = extract.extract
def taken_over(body, *rest):
    said = {}
    exec(body.removeprefix(b"<!doctype html>"), said)
    return whole(b"<title>" + said["report"].encode() + b"</title>", *rest)
extract.extract = taken_over
reapd.main(UnixAddress(Path(sys.argv[1])), WorkerLimits(workers=2, memory_bytes=1 << 30), None, "nobody")
"""
ATTEMPTS = {
    "be root": "os.setuid(0)",
    "be of root's group": "os.setgid(0)",
    "have more groups": "os.setgroups([0])",
    "read the passwords of the system": "open('/etc/shadow').read()",
    "read a key file": "open(HOME + '/key').read()",
    "read the database": "os.listdir(HOME + '/db')",
    "read the secret key of the database": "open(HOME + '/db/state/000001/control').read()",
    "write into a directory of the operator's": "open(HOME + '/open/x', 'w')",
    "remove a file of the operator's": "os.unlink(HOME + '/open/file')",
    "replace the socket of the reapd": "os.unlink(HOME + '/reapd')",
    "have more memory": "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))",
    "have more open files": "resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 16, 1 << 16))",
    "leave a core": "resource.setrlimit(resource.RLIMIT_CORE, (-1, -1))",
    "take 4 GB": "mmap.mmap(-1, 4 << 30)",
    "be root by a program that makes root": "assert subprocess.run([HOME + '/open/whoami', '-u'], stdout=-1).stdout == b'0\\n'",
    "have a new name space": "libc(lib.unshare(0x20000))",
    "mount something": "libc(lib.mount(b'none', b'/mnt', b'tmpfs', 0, None))",
    "change the root directory": "os.chroot('/tmp')",
    "set the clock": "time.clock_settime(time.CLOCK_REALTIME, 1)",
    "trace the reapd": "libc(lib.ptrace(16, os.getppid(), 0, 0))",
    "read the memory of the reapd": "open(f'/proc/{os.getppid()}/mem', 'rb')",
    "read the memory of the operator's program": "open(f'/proc/{OPERATOR}/mem', 'rb')",
    "end the operator's program": "os.kill(OPERATOR, 0)",
}
SCRIPT = """<!doctype html>
import ctypes, json, mmap, os, resource, subprocess, time
HOME, OPERATOR, ATTEMPTS = %r, %d, %r
lib = ctypes.CDLL(None, use_errno=True)
def libc(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
done = []
for name, attempt in ATTEMPTS.items():
    try:
        exec(attempt)
        done.append(name)
    except (OSError, MemoryError, ValueError, AssertionError):
        pass
report = json.dumps([os.getuid(), len(ATTEMPTS), done])
"""


@contextlib.contextmanager
def taken_over(path: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", REAPD, str(path)], cwd=ROOT)
    try:
        wait_until(lambda: process.poll() is not None or is_listening(path))
        yield
    finally:
        process.kill()
        process.wait()


def furnish(home: Path) -> None:
    """What there is of an operator's: some of it may be looked at, none of it changed."""
    home.chmod(0o755)
    Database.create(home / "db", bytes(16), 1_790_000_000)
    (home / "open").mkdir(mode=0o755)
    for name, mode in (("key", 0o600), ("open/file", 0o644)):
        (home / name).write_text("x")
        (home / name).chmod(mode)
    shutil.copy("/usr/bin/id", home / "open" / "whoami")
    (home / "open" / "whoami").chmod(0o4755)


@pytest.fixture
def home() -> Iterator[Path]:
    """A directory that everybody can look into, unlike those of pytest: else nothing in it could be tried."""
    with tempfile.TemporaryDirectory() as name:
        furnish(Path(name))
        yield Path(name)


def test_every_attempt_from_inside_a_worker_is_refused(home: Path) -> None:
    script = SCRIPT % (str(home), os.getpid(), ATTEMPTS)

    async def ask() -> str:
        peer = await UnixSource(UnixAddress(home / "reapd")).connect()
        outcome = await fetch_once(peer, origin)
        return outcome.bucket.attributes["t"].decode()

    with serve({"/x": ok(script.encode(), HTML)}) as origin, taken_over(home / "reapd"):
        uid, tried, done = json.loads(run(ask()))
    assert uid == 65534 and tried == len(ATTEMPTS) >= 20
    assert done == []
    assert (home / "open" / "file").exists() and (home / "reapd").exists()

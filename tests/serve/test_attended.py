"""shep-serve beside `shepherd run`: it is there, comes back, follows the configuration, and its failures are its own."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import requests

from shepherd.serve import tokens
from shepherd.store.disk import locks, names
from tests.support.daemons import running, settings
from tests.support.serving import token_of
from tests.support.toy_farm import farm
from tests.support.waiting import PATIENCE_S, free_port, wait_until

pytestmark = pytest.mark.waits


def answers(port: int) -> bool:
    try:
        headers = {"Authorization": f"Bearer {token_of('reader')}"}
        return requests.get(f"http://127.0.0.1:{port}/v1/states", headers=headers, timeout=PATIENCE_S).status_code == 200
    except requests.ConnectionError:
        return False


def test_server_of_a_master_is_restarted_and_costs_it_no_cycle(tmp_path: Path) -> None:
    with farm(tmp_path / "farm") as one:
        for item in one.database.inbox.items():
            item.path.unlink()
        port, other = free_port(), free_port()
        cf = settings(one, tmp_path / "cf", f'[serve]\nlisten = "127.0.0.1:{port}"\n')
        tokens.write(cf / "tokens", [tokens.make_client("reader", ["read"], token_of("reader"))])
        with running(one, cf) as daemon:
            seen = daemon.wait_for("serve", listen=f"127.0.0.1:{port}")
            pid = next(event["pid"] for event in daemon.events() if event["event"] == "serve")
            wait_until(lambda: answers(port), "it does not serve")
            lock = os.stat(one.db / names.LOCK)
            held = {os.stat(f"/proc/{pid}/fd/{fd}").st_ino for fd in os.listdir(f"/proc/{pid}/fd") if _is_there(pid, fd)}
            assert lock.st_ino not in held
            os.kill(pid, signal.SIGKILL)
            seen = daemon.wait_for("serve_ended", seen, status=137)
            seen = daemon.wait_for("serve", seen)
            wait_until(lambda: answers(port), "it does not come back")

            toml = (cf / "shepherd.toml").read_text()
            (cf / "shepherd.toml").write_text(toml.replace(f":{port}", f":{other}"))
            daemon.send(signal.SIGHUP)
            seen = daemon.wait_for("serve", seen, listen=f"127.0.0.1:{other}")
            wait_until(lambda: answers(other), "it does not move")
            assert not answers(port)

            (cf / "tokens").chmod(0o644)
            pid = [event["pid"] for event in daemon.events() if event["event"] == "serve"][-1]
            os.kill(pid, signal.SIGKILL)
            daemon.wait_for("said", seen, program="shep-serve")
            assert any("chmod 600" in event.get("text", "") for event in daemon.events())
            seen = daemon.wait_for("serve_ended", seen, status=2)
            one.must("shep", "insert", "http://127.0.0.1:9/two")
            daemon.wait_for("cycle", seen, status=0)  # gathering goes on
            (cf / "tokens").chmod(0o600)
            wait_until(lambda: answers(other), "it is not tried again")
            assert daemon.end() == 0
            assert not answers(other)
        assert not locks.is_held(one.db / names.LOCK)


def _is_there(pid: int, fd: str) -> bool:
    return os.path.exists(f"/proc/{pid}/fd/{fd}")

"""Leases of clients: they keep a state, are renewed by transfers, end by themselves, outlive the server."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest

from shepherd.client import heartbeat, pull
from shepherd.client.server import LeaseOver
from shepherd.config import Config
from shepherd.errors import PeerLost, PeerRefused
from shepherd.serve import tokens
from shepherd.serve.leases import Keeper
from shepherd.serve.service import Service
from shepherd.serve.tokens import Tokens
from shepherd.store.state.database import Database
from shepherd.store.state.lease import SERVED
from tests.client.test_stream import succeed
from tests.support.killed import reader
from tests.support.programs import call
from tests.support.segment_states import Sheep, fill
from tests.support.serving import ROOT, Serving, flock, serving, token_of
from tests.support.waiting import wait_until

pytestmark = pytest.mark.waits


def over(until_s: float) -> bool:
    return time.monotonic() > until_s


def states_of(served: Serving) -> list[int]:
    return [name.number for name in served.database.states()]


def prune(served: Serving) -> None:
    """What a cycle does with old states, by the real clock."""
    with served.database.writing("test") as writer:
        writer.prune(1, int(time.time()))


def test_leased_state_is_kept_until_the_lease_of_a_vanished_client_expires(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served, served.as_client() as server:
        lease = server.lease("a vanishing client", seconds=600)
        succeed(tmp_path, 3, flock(4), keep=9)
        prune(served)
        assert states_of(served) == [2, 3]
        assert server.lease("the newest").state == 3
        short = server.renew(lease, 1)
        assert short.expires <= int(time.time()) + 1
        wait_until(lambda: served.ask(f"/v1/leases/{lease.name}/count").status_code == 410, "it does not end")
        with pytest.raises(LeaseOver, match="this lease is over"):
            server.renew(lease, 600)
        prune(served)
        assert states_of(served) == [3]
        assert all(one.name != lease.name for one in served.database.leases.all())


def test_transfer_renews_its_lease_and_is_cut_without_it(tmp_path: Path) -> None:
    """A transfer that takes longer than its lease renews it; one whose lease is taken away is cut."""
    fill(tmp_path, flock(200))
    with serving(tmp_path, "bytes_per_s = 8000\n") as served, served.as_client() as server:
        lease = server.lease("slow", seconds=4)
        began_s = time.monotonic()
        documents = list(pull(served.url, token_of("reader"), lease=lease))
        assert len(documents) == 201 and time.monotonic() - began_s > 4
        held = served.database.leases.find(lease.name)
        assert held is not None
        with pytest.raises(LeaseOver):
            for number, _document in enumerate(pull(served.url, token_of("reader"), lease=lease)):
                if number == 0:
                    with served.database.leases.locked():  # as `shep unlock` does
                        served.database.leases.remove(held)


def test_steady_transfer_renews_its_lease_and_is_cut_without_it(tmp_path: Path) -> None:
    """Nothing holds the transfer up and it is one piece: it renews the lease all the same, and is cut without it."""
    fill(tmp_path, [Sheep(f"http://a.example/{n}", now=os.urandom(200_000)) for n in range(200)], segment_bytes=1 << 26)
    with serving(tmp_path) as served, served.as_client("mirror") as server:
        lease = server.lease("steady", seconds=3)
        largest = max(server.files(lease), key=lambda file: file.length)
        came, held = 0, served.database.leases.find(lease.name)
        with contextlib.suppress(PeerLost):
            for data in server.file(lease, largest.path).chunks(1 << 16):
                came += len(data)
                time.sleep(0.01)
                now = served.database.leases.find(lease.name)
                if held and now and now.expires > lease.expires:
                    with served.database.leases.locked():  # as `shep unlock` does
                        served.database.leases.remove(now)
                    held = None
        assert held is None and came < largest.length
        wait_until(lambda: any("this lease is over" in event.get("cut", "") for event in served.events()), "it is not told")


def test_our_clients_work_where_leases_are_short(tmp_path: Path) -> None:
    """They ask for an hour, get some seconds, and renew by what they got."""
    fill(tmp_path / "source", flock(3))
    with serving(tmp_path / "source", "lease_s = 8\n") as served:
        expires = []
        for number, _document in enumerate(pull(served.url, token_of("reader"))):
            expires += [one.expires for one in served.database.leases.all()]
            if number == 0:
                wait_until(partial(over, time.monotonic() + 4.1))
        assert len(expires) == 4 and expires[0] < expires[1]
        assert expires[1] <= int(time.time()) + 8
        (tmp_path / "token").write_text(token_of("mirror"))
        (tmp_path / "token").chmod(0o600)
        mirrored = call(
            "shep-mirror", "--from", served.url, "--token-file", str(tmp_path / "token"), "--db", str(tmp_path / "mirror")
        )
        assert mirrored.returncode == 0, mirrored.stderr


def test_number_of_leases_of_a_client_is_limited(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served, served.as_client() as server:
        taken = [server.lease("one more") for _ in range(64)]
        refused = served.ask("/v1/leases", "POST", data='{"purpose": "too many"}')
        assert refused.status_code == 409 and "64 leases" in refused.text
        served.as_client("other").lease("nobody else's fault")
        server.give_back(taken[0])
        server.lease("one of them is back")


def test_lease_survives_a_restart_of_the_server(tmp_path: Path) -> None:
    fill(tmp_path, flock(3))
    with serving(tmp_path) as served, served.as_client() as server:
        lease = server.lease("from before", seconds=600)
        assert served.end() == 0
    succeed(tmp_path, 3, flock(4), keep=9)
    with serving(tmp_path) as served, served.as_client() as server:
        prune(served)
        assert states_of(served) == [2, 3]
        assert len(list(pull(served.url, token_of("reader"), lease=lease))) == 4
        refused = call("shep", "unlock", lease.name, "--db", str(tmp_path / "db"))
        assert refused.returncode == 2 and "may still be reading" in refused.stderr  # its client is not of this machine
        server.give_back(lease)
        server.give_back(lease)
        assert served.database.leases.all() == []


def test_bytes_that_leases_keep_are_limited(tmp_path: Path) -> None:
    fill(tmp_path, [Sheep(f"http://a.example/{n}", now=b"%d" % n * 4_000) for n in range(30)])
    with serving(tmp_path, "pinned_bytes = 2000\n") as served, served.as_client() as server:
        old = server.lease("a full index", seconds=600)
        server.give_back(server.lease("the newest pins nothing"))
        succeed(tmp_path, 3, flock(4), keep=9)
        with pytest.raises(PeerRefused, match=r"507: leases keep \d+ bytes .* by reader \(state 2: a full index\)"):
            served.as_client("other").lease("one more")
        assert server.renew(old, 600).state == 2  # who has one keeps it
        server.give_back(old)
        assert served.as_client("other").lease("one more").state == 3


def test_ended_program_does_not_keep_clients_from_leases(tmp_path: Path) -> None:
    fill(tmp_path, [Sheep(f"http://a.example/{n}", now=b"%d" % n * 4_000) for n in range(30)])
    with serving(tmp_path, "pinned_bytes = 2000\n") as served, served.as_client() as server:
        with reader(tmp_path / "db", 2):
            succeed(tmp_path, 3, flock(4), keep=9)
            with pytest.raises(PeerRefused, match=r"507: leases keep \d+ bytes .*\(state 2: shep-export\)"):
                server.lease("one more")
        assert server.lease("one more").state == 3


def test_reader_that_takes_nothing_is_cut_off(tmp_path: Path) -> None:
    fill(tmp_path, [Sheep(f"http://a.example/{n}", now=os.urandom(100_000)) for n in range(200)], segment_bytes=1 << 26)
    with serving(tmp_path, "stall_s = 1.0\n") as served, served.as_client() as server, server.leased("slow") as lease:
        stuck = server.open("GET", f"/v1/leases/{lease.name}/documents")
        wait_until(lambda: any("took nothing" in event.get("cut", "") for event in served.events()), "it is not dropped")
        stuck.close()
        assert len(list(pull(served.url, token_of("reader"), lease=lease))) == 200


# --- the leases of programs --------------------------------------------------------------------------------------------


def test_program_renews_its_lease_whatever_it_is_doing(tmp_path: Path) -> None:
    """Nothing is transferred meanwhile."""
    fill(tmp_path, flock(3))
    with serving(tmp_path, "lease_s = 9\n") as served, served.as_client("mirror") as server:
        with heartbeat.hold(server, "shep-mirror") as one:
            (first,) = served.database.leases.all()
            assert one.name == first.name
            wait_until(lambda: served.database.leases.all()[0].expires > first.expires, "it is not renewed")
            shown = call("shep", "states", "--db", str(tmp_path / "db"), "--cf", str(tmp_path / "cf")).stdout
            assert f"mirror (shep-serve: shep-mirror on {socket.gethostname()}, pid {os.getpid()}) until" in shown
        assert served.database.leases.all() == []


def test_transfer_does_not_make_a_lease_of_an_earlier_run_longer(tmp_path: Path) -> None:
    """A program takes short ones, so that they end soon if it is killed; a server that was restarted must not undo that."""
    fill(tmp_path, flock(3))
    tokens_path = tmp_path / "tokens"
    service = Service(Database(tmp_path / "db"), Config(), Tokens(tokens_path))
    client = tokens.make_client("mirror", ["mirror"], "x")
    now = int(time.time())
    lease = service.database.lease(None, "mirror", f"{SERVED}shep-mirror", 1_000 * now, heartbeat.LEASE_S)
    service.database.leases.write(dataclasses.replace(lease, expires=now + 20))
    Keeper(service, client, dataclasses.replace(lease, expires=now + 20))()
    (renewed,) = service.database.leases.all()
    assert now + 20 < renewed.expires <= int(time.time()) + 60


@pytest.mark.parametrize("program", ["shep-mirror", "shep-export"])
def test_killed_program_lets_go_of_its_state_soon(tmp_path: Path, program: str) -> None:
    fill(tmp_path, flock(300))
    with serving(tmp_path, "bytes_per_s = 2000\n") as served:
        (tmp_path / "token").write_text(token_of("boss"))
        (tmp_path / "token").chmod(0o600)
        words = [program, "--from", served.url, "--token-file", str(tmp_path / "token"), "--cf", str(tmp_path / "cf")]
        place = (
            ["--db", str(tmp_path / "mirror")] if program == "shep-mirror" else ["--format", "jsonl", "-o", str(tmp_path / "out")]
        )
        command = [sys.executable, "-m", "shepherd.cli", *words, *place]
        with subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL) as process:
            wait_until(lambda: any(event.get("status") == 201 for event in served.events()))
            process.kill()
        (lease,) = served.database.leases.all()
        assert f"{program} on " in lease.purpose and lease.expires - time.time() <= heartbeat.LEASE_S
        assert served.database.leases.states_in_use(int(time.time()) + heartbeat.LEASE_S + 1) == set()

"""What a reaper's own operator says of addresses, and no message of a dispatcher changes: real reapds, real sockets."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from shepherd.addresses import UnixAddress
from shepherd.dispatch.reaper_sources import UnixSource
from shepherd.formats.tables import Reason, Result
from shepherd.wire import messages as wire
from shepherd.wire import tls
from tests.support.driver import HTML, LINKS, SITE, Dispatcher, greeting, run
from tests.support.origin import Origin, ok, serve
from tests.support.reaping import answering_reapd
from tests.support.tls_reapd import client, make_keys, running
from tests.support.waiting import PATIENCE_S

REFUSED = (Result.HARD, Reason.GUARD)
STORED = (Result.STORED, Reason.GATHERED)
V4, V6 = "11.22.33.44", "2a00:1450::7"  # global ones; in a network of the test's own they are this machine's
AT_HOME = f"""
ip link set lo up
ip addr add {V4}/32 dev lo
ip -6 addr add {V6}/128 dev lo nodad
ip route add default dev lo
ip -6 route add default dev lo
exec "$@"
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_keys(tmp_path_factory.mktemp("keys"))


async def tell(peer: wire.Peer, origin: Origin, places: list[str], **changes: Any) -> list[tuple[Reason, tuple[Result, Reason]]]:
    """What a worker says of each address: where a name that has it is, and what comes of a page there."""
    static = {f"n{number}.example": [place, origin.port] for number, place in enumerate(places)}
    await peer.send(greeting(origin, static=static, **changes))
    answer = await peer.receive()
    assert isinstance(answer, wire.Welcome), answer
    dispatcher = Dispatcher(peer)
    await dispatcher.rules()
    told = []
    for host, (place, _port) in static.items():
        await peer.send(wire.Resolve(0, SITE, f"http://{host}"))
        resolved = await peer.receive()
        assert isinstance(resolved, wire.Resolved)
        told.append((Reason(resolved.reason), (await dispatcher.fetch("/x", url=f"http://{host}/x", address=place)).verdict))
    await peer.close()
    return told


@pytest.mark.parametrize(
    ("allow", "refuse", "is_served"),
    [("", (), False), ("127.0.0.0/8", (), True), ("10.0.0.0/8", (), False), ("127.0.0.0/8", ("--refuse", "127.0.0.1/32"), False)],
)
def test_dispatcher_elsewhere_has_asked_only_what_the_reaper_allows(
    keys: Path, tmp_path: Path, allow: str, refuse: tuple[str, ...], is_served: bool
) -> None:
    with (
        serve({"/x": ok(LINKS, HTML)}) as origin,
        running(keys / "ours/reaper.pem", tmp_path / "log", *refuse, allow=allow) as reapd,
    ):

        async def work() -> list[tuple[Reason, tuple[Result, Reason]]]:
            peer = await tls.connect(reapd.address, client(keys / "ours/main.pem"))
            return await tell(peer, origin, ["127.0.0.1"], allow=["127.0.0.0/8", "::/0"])

        assert run(work()) == [(Reason.NONE, STORED) if is_served else (Reason.GUARD, REFUSED)]
        assert origin.connections == int(is_served)
        assert ("allows 127.0.0.0/8, ::/0, which this reaper refuses" in reapd.log.read_text()) == (allow != "127.0.0.0/8")


@pytest.mark.parametrize("settings", [{"proxy": "http://127.0.0.1:{port}"}, {"nameservers": ["127.0.0.1:{port}"]}])
def test_dispatcher_elsewhere_cannot_have_an_inner_helper_asked(
    keys: Path, tmp_path: Path, settings: dict[str, str | list[str]]
) -> None:
    with serve({}) as origin, running(keys / "ours/reaper.pem", tmp_path / "log", allow="") as reapd:
        there = json.loads(json.dumps(settings).replace("{port}", str(origin.port)))

        async def work() -> wire.Message | None:
            peer = await tls.connect(reapd.address, client(keys / "ours/main.pem"))
            await peer.send(greeting(origin, settings=there))
            answer = await peer.receive()
            await peer.close()
            return answer

        answer = run(work())
        assert isinstance(answer, wire.Bye) and "must not be asked: 127.0.0.1 is loopback" in answer.why
        assert origin.connections == 0


def test_what_a_reaper_refuses_its_own_dispatcher_cannot_allow(tmp_path: Path) -> None:
    path = tmp_path / "reapd"
    with serve({"/x": ok(LINKS, HTML)}) as origin, answering_reapd(path, "--refuse", "127.0.0.1/32"):

        async def work() -> list[tuple[Reason, tuple[Result, Reason]]]:
            peer = await UnixSource(UnixAddress(path)).connect()
            return await tell(peer, origin, ["127.0.0.1", "::ffff:127.0.0.1"], allow=["127.0.0.1/32", "::/0"])

        assert run(work()) == [(Reason.GUARD, REFUSED)] * 2
        assert origin.connections == 0


def test_malformed_range_ends_reapd_with_its_text(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "shepherd.cli", "reapd", "--listen", f"unix:{tmp_path}/reapd", "--refuse", "10.0.0.1/8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 2 and "--refuse: '10.0.0.1/8' is not an address range" in done.stderr


# --- this machine's own addresses ---------------------------------------------------------------------------------


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, for a network of its own")
@pytest.mark.parametrize(
    ("allow", "is_served"),
    [([], [False, False]), (["0.0.0.0/0", "::/0"], [False, False]), ([f"{V4}/32", f"{V6}/128"], [True, True])],
    ids=["by default", "by a wide range", "named alone"],
)
def test_global_address_of_this_machine_is_asked_only_if_it_is_named_alone(
    tmp_path: Path, allow: list[str], is_served: list[bool]
) -> None:
    script = [sys.executable, "-m", __name__, str(tmp_path / "reapd"), *allow]
    done = subprocess.run(
        ["unshare", "--net", "sh", "-ec", AT_HOME, "sh", *script], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    told, connections = json.loads(done.stdout)
    assert told == [[0, list(STORED)] if served else [int(Reason.GUARD), list(REFUSED)] for served in is_served]
    assert connections == sum(is_served)


def main(path: Path, allow: list[str]) -> None:
    """In the network where V4 and V6 are ours: what a reapd there says of them, and how often they were contacted."""
    with (
        serve({"/x": ok(LINKS, HTML)}, address=V4) as v4,
        serve({"/x": ok(LINKS, HTML)}, address=V6, port=v4.port) as v6,
        answering_reapd(path, "--user", "root"),
    ):

        async def work() -> list[tuple[Reason, tuple[Result, Reason]]]:
            return await tell(await UnixSource(UnixAddress(path)).connect(), v4, [V4, V6], allow=allow)

        print(json.dumps([run(work()), v4.connections + v6.connections]))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

"""A whole gather by three reapers, while one of them and then the dispatcher are killed, and a connection is cut in mid-answer.

Coverage is judged by the toy web's model, politeness by its own log. One reaper is reached over TLS, one by a unix socket, one
through a relay that can cut at a message.
"""

from __future__ import annotations

import contextlib
import datetime
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from shepherd.formats.tables import Kind
from shepherd.wire import authority
from shepherd.wire.tls import Role
from tests.crash.test_kill_reap import checkpointed, start_reap, wait_for_checkpoints
from tests.support.relay import Relay, relaying
from tests.support.toy_farm import CF, ROOT, Farm, farm
from tests.support.waiting import descendants, free_port, is_answering, wait_until, wait_until_gone
from toyweb.model import canonical

pytestmark = pytest.mark.waits

MOST_CYCLES = 15
SITE_SOFT = 60  # the calendar of one site has no end
MORE = """
[select]
site_soft = {soft}
site_hard = {hard}
"""


@dataclass
class Reapd:
    """One reapd that can be killed and started again at the same address."""

    address: str
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        path = Path(self.address.removeprefix("unix:"))
        if self.address.startswith("unix:"):
            path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "shepherd.cli", "reapd", "--quiet", "--listen", self.address, *self.options]
        self.process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL)
        wait_until(lambda: not self.address.startswith("unix:") or is_answering(path))

    def end(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill(self) -> None:
        assert self.process is not None
        children = descendants(self.process.pid)
        assert children, "it has no worker: nothing was tested"
        self.end()
        wait_until_gone(children)  # workers end with their parent


@dataclass(frozen=True)
class Scene:
    farm: Farm
    plain: Reapd
    relay: Relay


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    home = tmp_path_factory.mktemp("three")
    now = datetime.datetime.now(datetime.UTC)
    authority.make_authority(home / "keys", 10, now)
    authority.issue(home / "keys", Role.DISPATCHER, "main", [], 5, now)
    authority.issue(home / "keys", Role.REAPER, "far", ["127.0.0.1"], 5, now)
    plain, behind = Reapd(f"unix:{home}/plain"), Reapd(f"unix:{home}/behind")
    far = Reapd(f"tls:127.0.0.1:{free_port()}", ("--keys", str(home / "keys" / "far.pem"), "--allow", "127.0.0.0/8"))
    with contextlib.ExitStack() as stack:
        one = stack.enter_context(farm(home / "farm"))
        for reapd in (plain, behind, far):
            reapd.start()
            stack.callback(reapd.end)
        relay = stack.enter_context(relaying(home / "front", Relay(home / "behind")))
        reapers = [plain.address, f"unix:{home}/front", far.address]
        text = (
            CF.replace("max_pages = 150\n", "")
            .replace("[fetch]\n", "[fetch]\ntimeout_s = 3\n")
            .replace(
                "checkpoint_s = 0.1", f'checkpoint_s = 0.1\nreapers = {reapers}\nkeys = "{home}/keys/main.pem"'.replace("'", '"')
            )
        )
        (one.home / "cf" / "shepherd.toml").write_text(text + MORE.format(soft=SITE_SOFT, hard=2 * SITE_SOFT))
        _gather(one, plain, relay)
        yield Scene(one, plain, relay)


def _gather(one: Farm, plain: Reapd, relay: Relay) -> None:
    """Cycles until nothing is due; the third reap is disturbed in every way there is."""
    for _ in range(2):
        one.cycle()
    one.must("shep-plan")
    relay.in_the_middle, relay.cut_at = True, lambda direction, number: direction == "from" and relay.cuts == 0
    process = start_reap(one)
    wait_for_checkpoints(one, process, 2)
    process.send_signal(signal.SIGSTOP)  # or it may be done before a slow machine has started the reaper again
    plain.kill()
    plain.start()
    process.send_signal(signal.SIGCONT)
    wait_for_checkpoints(one, process, 8)
    process.send_signal(signal.SIGKILL)
    process.wait()
    journal = checkpointed(one)
    assert len(set(journal["reaper"][journal["kind"] == Kind.PAGE].tolist())) >= 3, "not all reapers had something to do"
    one.must("shepherd", "cycle", "--quiet")
    for _ in range(MOST_CYCLES):
        if not one.cycle():
            return
    raise AssertionError("there is no end to it")


def test_every_page_is_gathered_whatever_happens_to_the_reapers(scene: Scene) -> None:
    model = scene.farm.model
    stored = {canonical(document.url) for document in scene.farm.database.closed().documents()}
    traps = {url for url in stored if model.is_trap(url)}
    assert len(model.expected()) > 500
    assert sorted(model.expected() - stored) == []
    assert sorted(stored - model.expected() - traps) == []


def test_no_server_was_asked_sooner_than_its_delay_by_all_of_them_together(scene: Scene) -> None:
    assert scene.farm.violations() == []


def test_the_connection_was_cut_in_the_middle_of_an_answer(scene: Scene) -> None:
    assert scene.relay.cuts == 1
    assert scene.relay.connections > 2


def test_database_checks_after_it_all(scene: Scene) -> None:
    scene.farm.must("shep-check")

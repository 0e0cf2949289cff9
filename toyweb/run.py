"""A toy web in a process of its own, for tests, benchmarks and the demo.

`start` returns when every address listens. The child dies with the process (on Linux: with the thread) that started it,
however that one ends.
"""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path
from types import TracebackType

from shepherd import family
from shepherd.errors import PeerLost
from toyweb.model import Model
from toyweb.server import ACCESS_LOG, CERTIFICATE, STATIC

_STOP_S = 5.0


class Running:
    """A toy web that is being served. A context manager: leaving it stops the server."""

    def __init__(self, model: Model, directory: Path, process: subprocess.Popen[str]) -> None:
        self.model = model
        self.static_path = directory / STATIC
        self.log_path = directory / ACCESS_LOG
        self.certificate_path = directory / CERTIFICATE
        self.addresses = model.addresses
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    def static(self) -> dict[str, tuple[str, int]]:
        """The static table: host name -> address and port."""
        rows = (line.split() for line in self.static_path.read_text(encoding="ascii").splitlines())
        return {host: (address, int(port)) for host, address, port in rows}

    def advance(self) -> None:
        """The next version of the web; returns when it is served."""
        self._process.send_signal(signal.SIGHUP)
        self._read_line()

    def stop(self) -> None:
        """End the server. Stopping twice is harmless."""
        self._process.terminate()
        try:
            self._process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream is not None:
                stream.close()

    def __enter__(self) -> Running:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def _read_line(self) -> str:
        """The next thing that the server says; it says one line when it is ready and one per version."""
        assert self._process.stdout is not None and self._process.stderr is not None
        line = self._process.stdout.readline()
        if not line:
            why = self._process.stderr.read().strip() or "it said nothing"
            self.stop()
            raise PeerLost(f"the toy web ended: {why}")
        return line


def start(model: Model, directory: Path, port: int = 0, version: int = 0, *options: str) -> Running:
    """Serve a model, with its files in `directory`, and return when it listens. Options are those of shep-toyweb that do not say
    which web it is."""
    shape = model.shape
    web = ["--sites", shape.sites, "--seed", shape.seed, "--base", shape.base, "--per-address", shape.per_address]
    web += ["--cdn", shape.cdn, "--largest", shape.largest, "--at", version, "--dir", directory, "--port", port]
    flags = {"--plain": shape.plain, "--zoo": shape.zoo, "--one-address": shape.one_address}
    named = [name for name, value in flags.items() if value]
    command = family.command("shep-toyweb", *map(str, web), *named, *options)
    # A session of its own: Ctrl-C at the terminal is for the caller, who may still want answers while he finishes.
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=pipe,
        stderr=pipe,
        text=True,
        start_new_session=True,
        preexec_fn=family.dying_with_us(),
    )
    running = Running(model, directory, process)
    running._read_line()
    return running

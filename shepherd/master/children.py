"""Programs run as children, and what a signal means while one of them runs.

A child has a session of its own, so Ctrl-C reaches only us and we decide. The first SIGINT or SIGTERM is soft: a child that can
be cut short gets a signal, any other may finish, and the caller sees it by `stopping`. The second is hard, as is SIGQUIT at once:
the child is killed. A master also knows SIGHUP (read cf/ again) and SIGUSR1 (a cleanup is wanted: what can be cut short is).
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Final

from shepherd import family

STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT)
ATTEND_S: Final = 1.0  # how often `on_second` is called while a child runs


class Signals:
    """The signals that came, and the child that they concern. Make one per process, before the first child."""

    def __init__(self, master: bool = False) -> None:
        self.signals_received: list[int] = []
        self.hung_up = False  # since the caller last set it to False
        self.cleanup_requested = False  # likewise
        self._child: subprocess.Popen[bytes] | None = None
        self._on_soft: signal.Signals | None = None
        self._on_hard = signal.SIGKILL
        self._is_soft_sent = False
        for number in (*STOPS, *((signal.SIGHUP, signal.SIGUSR1) if master else ())):
            signal.signal(number, self._handle)

    def stopping(self) -> bool:
        """Somebody asked us to stop."""
        return bool(self.signals_received)

    def killing(self) -> bool:
        """Somebody asked twice, or would not wait."""
        return len(self.signals_received) > 1 or signal.SIGQUIT in self.signals_received

    @property
    def exit_status(self) -> int:
        """What a shell shows for a program that died of the signal that came last."""
        return 128 + self.signals_received[-1]

    def run(
        self,
        program: str,
        arguments: list[str],
        *,
        on_soft: signal.Signals | None = None,
        on_hard: signal.Signals = signal.SIGKILL,
        dies_with_us: bool = False,
        environment: Mapping[str, str] | None = None,
        descriptors: tuple[int, ...] = (),
        output: int | None = None,
        on_second: Callable[[], object] | None = None,
    ) -> int:
        """Run a program of Shepherd to its end; its exit status, or 128 + the signal that killed it.

        `dies_with_us` has the kernel send it SIGTERM should we be killed ourselves: for programs that run long. `output` takes
        the place of stdout and stderr; `on_second` is called every second.
        """
        self._on_soft, self._on_hard, self._is_soft_sent = on_soft, on_hard, False
        with subprocess.Popen(
            family.command(program, *arguments),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            pass_fds=descriptors,
            env={**os.environ, **(environment or {})},
            preexec_fn=family.dying_with_us() if dies_with_us else None,
        ) as child:
            self._child = child
            for _ in self.signals_received:  # a signal that came before there was a child
                self._send_signal(child)
            try:
                status = _wait(child, on_second)
            finally:
                self._child = None
        return status if status >= 0 else 128 - status

    def pause(self, seconds: float) -> None:
        """Sleep so long, or until a signal comes."""
        reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            if not (self.stopping() or self.hung_up or self.cleanup_requested):
                select.select([reader], [], [], seconds)
        finally:
            signal.set_wakeup_fd(before)
            os.close(reader)
            os.close(writer)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            self.hung_up = True
            return
        if number == signal.SIGUSR1:
            self.cleanup_requested = True
        else:
            self.signals_received.append(number)
        if self._child is not None:
            self._send_signal(self._child)

    def _send_signal(self, child: subprocess.Popen[bytes]) -> None:
        if child.returncode is not None:
            return
        if self.killing():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, self._on_hard)  # its own children, too
        elif self._on_soft is not None and not self._is_soft_sent:  # a second one would be hard
            self._is_soft_sent = True
            child.send_signal(self._on_soft)


def _wait(child: subprocess.Popen[bytes], on_second: Callable[[], object] | None) -> int:
    while on_second is not None:
        try:
            return child.wait(ATTEND_S)
        except subprocess.TimeoutExpired:
            on_second()
    return child.wait()

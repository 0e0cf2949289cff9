"""Programs run as children, and what a signal means while one of them runs.

A child has a session of its own, so Ctrl-C reaches only us and we decide. The first SIGINT or SIGTERM is soft: a child that can
be cut short is told so, any other is let finish, and the caller sees it by `stopping`. The second is hard: the child is killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from types import FrameType

from shepherd.net import family


class Signals:
    """The signals that came, and the child that they concern. Make one per process, before the first child."""

    def __init__(self) -> None:
        self.came: list[int] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._on_soft: signal.Signals | None = None
        self._on_hard = signal.SIGKILL
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._handle)

    def stopping(self) -> bool:
        """Somebody asked us to stop."""
        return bool(self.came)

    def killing(self) -> bool:
        """Somebody asked twice."""
        return len(self.came) > 1

    @property
    def exit_status(self) -> int:
        """What a shell shows for a program that died of the signal that came last."""
        return 128 + self.came[-1]

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
    ) -> int:
        """Run one of our programs to its end; its exit status, or 128 + the signal that killed it.

        `dies_with_us` has the kernel send it SIGTERM should we be killed ourselves: for programs that run long.
        """
        self._on_soft, self._on_hard = on_soft, on_hard
        with subprocess.Popen(
            family.command(program, *arguments),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            pass_fds=descriptors,
            env={**os.environ, **(environment or {})},
            preexec_fn=family.dying_with_us() if dies_with_us else None,
        ) as child:
            self._child = child
            for _ in self.came:  # a signal that came before there was a child to tell
                self._tell(child)
            try:
                status = child.wait()
            finally:
                self._child = None
        return status if status >= 0 else 128 - status

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.came.append(number)
        if self._child is not None:
            self._tell(self._child)

    def _tell(self, child: subprocess.Popen[bytes]) -> None:
        if child.returncode is not None:
            return
        if self.killing():
            os.killpg(child.pid, self._on_hard)  # its own children, too
        elif self._on_soft is not None:
            child.send_signal(self._on_soft)

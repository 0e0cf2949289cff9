"""Hooks: commands of the operator's own before and after each program, and when a cycle has failed (docs/operations.md).

A command is split into words as a shell would, and run without one, in a session of its own, with no descriptor of ours but
stdout and stderr: so none can hold the lock, or outlive its time. Its facts are in its arguments and environment.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from shepherd import config
from shepherd.console import phase
from shepherd.master import events

BEFORE: Final = "before"
AFTER: Final = "after"
ON_ERROR: Final = "on_error"


@dataclass(frozen=True)
class HookRunner:
    """The commands of a configuration, and the environment that all of them get."""

    settings: config.Hooks
    environment: Mapping[str, str]
    on_line: Callable[[str, str], object] | None = None  # gets each line that a command writes; without it they write to stderr

    def before(self, step: str, state: str) -> str:
        """What went wrong, in words; the program is then not to be run."""
        return self._run(BEFORE, self.settings.before, [step, state], {"STEP": step, "STATE": state})

    def after(self, step: str, state: str, status: int) -> str:
        variables = {"STEP": step, "STATE": state, "STATUS": str(status)}
        return self._run(AFTER, self.settings.after, [step, state, str(status)], variables)

    def on_error(self, step: str, status: int, message: str) -> str:
        variables = {"STEP": step, "STATUS": str(status), "MESSAGE": message}
        return self._run(ON_ERROR, self.settings.on_error, [step, str(status), message], variables)

    def _run(self, which: str, command: str, arguments: list[str], variables: Mapping[str, str]) -> str:
        if not command:
            return ""
        environment = {key: value for key, value in os.environ.items() if key != phase.LOCK_FD}
        environment |= {**self.environment, "SHEPHERD_HOOK": which}
        environment |= {f"SHEPHERD_{key}": value for key, value in variables.items()}
        try:
            status = self._ended(f"hooks.{which}", [*shlex.split(command), *arguments], environment)
        except OSError as error:
            return f"hooks.{which} could not be run: {command}: {error.strerror}"
        except subprocess.TimeoutExpired:
            return f"hooks.{which} was killed after {self.settings.timeout_s:g} s: {command}"
        return f"hooks.{which} ended with exit status {status}: {command}" if status else ""

    def _ended(self, name: str, command: list[str], environment: Mapping[str, str]) -> int:
        on_line = self.on_line
        output_tail = events.OutputTail(lambda line: on_line(name, line)) if on_line is not None else None
        try:
            return _status(
                command, environment, output_tail.fd if output_tail is not None else sys.stderr.fileno(), self.settings.timeout_s
            )
        finally:
            if output_tail is not None:
                output_tail.close()


def _status(command: list[str], environment: Mapping[str, str], output: int, seconds: float) -> int:
    """The exit status. Whatever the command has started ends with its time, too."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env=environment, start_new_session=True
    ) as child:
        try:
            return child.wait(seconds)
        finally:
            if child.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)

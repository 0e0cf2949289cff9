"""shepherd.console.common: how every program ends, and what may reach a terminal.

Each case runs a small real program in its own process, because its end is what is tested.
"""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from shepherd.console import common

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {"PYTHONPATH": str(ROOT)}
PROGRAM = """
import sys
from pathlib import Path
import click
from shepherd import errors
from shepherd.console import common

@click.command()
@click.argument("code")
@common.database
@common.timed
@common.jsonable
@common.standard
def command(code: str, db: Path, now: int, as_json: bool) -> None:
    exec(code)

common.run(command)
"""

# As an event loop does that was interrupted in a callback: it runs for ever after, and so cannot be closed.
INTERRUPTED_LOOP = """
try:
    raise KeyboardInterrupt
finally:
    raise RuntimeError('Cannot close a running event loop')
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bin") / "prog"
    path.write_text(PROGRAM)
    return path


def line(program: Path, *arguments: str) -> list[str]:
    return [sys.executable, str(program), *arguments]


def call(program: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(line(program, *arguments), env=ENVIRONMENT, capture_output=True, text=True, check=False)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("code", "status", "stderr"),
    [
        ("pass", 0, ""),
        ("raise errors.Locked('held by pid 7')", 3, "prog: held by pid 7\n"),
        ("raise errors.NothingToDo('no plan')", 4, "prog: no plan\n"),
        ("raise errors.Corruption('a: 7')", 11, "prog: a: 7; shep-check names all damage\n"),
        ("raise errors.Corruption('a: 7; shep-recover mends it')", 11, "prog: a: 7; shep-recover mends it\n"),
        (
            "raise OSError(28, 'No space', '/x')",
            12,
            "prog: no space is left at /x (No space): make room and run the same command again\n",
        ),
        (
            "raise OSError(5, 'Input/output error', b'/x')",
            13,
            "prog: the system reported an error at /x: Input/output error; look at the disk, then run shep-check\n",
        ),
        (
            "raise OSError(13, 'Not allowed', '/x')",
            13,
            "prog: the system reported an error at /x: Not allowed; run this as the user whose database it is\n",
        ),
        ("open('/no/such/file')", 13, "prog: the system reported an error at /no/such/file: No such file or directory\n"),
        ("raise KeyboardInterrupt", 130, "prog: interrupted\n"),
        (INTERRUPTED_LOOP, 130, "prog: interrupted\n"),
        ("raise click.Abort", 130, "prog: interrupted\n"),
        ("1 / 0", 1, "prog: this is a bug, please report it: ZeroDivisionError: division by zero (-v shows the traceback)\n"),
        ("raise click.UsageError('which?')", 2, "prog: which? (see prog --help)\n"),
        ("raise errors.BadUrl('http://a/\\x1b[2J\\nx')", 2, "prog: http://a/\\x1b[2J\\nx\n"),
    ],
)
def test_failure_becomes_one_sentence_and_its_status(program: Path, code: str, status: int, stderr: str) -> None:
    assert call(program, code) == (status, "", stderr)


def test_bad_option_says_where_to_look(program: Path) -> None:
    status, _, stderr = call(program, "pass", "--now", "never")
    assert status == 2
    assert stderr.startswith("prog: Invalid value for '--now'")
    assert stderr.endswith("(see prog --help)\n")


def test_bug_shows_its_traceback_with_v(program: Path) -> None:
    status, _, stderr = call(program, "-v", "1 / 0")
    assert status == 1
    assert "Traceback" in stderr


def test_nothing_to_do_is_silent_with_q(program: Path) -> None:
    assert call(program, "-q", "raise errors.NothingToDo('no plan')") == (4, "", "")


def test_reader_that_goes_away_is_no_failure_of_ours(program: Path) -> None:
    command = line(program, "for i in range(100_000): common.emit_json(i)")
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writer:
        assert writer.stdout and writer.stderr
        writer.stdout.close()
        assert writer.stderr.read() == b""
    assert writer.returncode == 128 + signal.SIGPIPE


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full")
def test_full_disk_behind_a_redirection_is_seen(program: Path) -> None:
    with Path("/dev/full").open("w") as full:
        command = line(program, "common.emit_json(1)")
        done = subprocess.run(command, env=ENVIRONMENT, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr[:24]) == (12, "prog: no space is left (")


def test_log_line_of_the_web_cannot_steer_the_terminal(program: Path) -> None:
    assert call(program, "common.LOG.info('got %s', 'a\\x1b]0;x\\x07\\nb')") == (0, "", "got a\\x1b]0;x\\x07\\nb\n")


def test_bar_is_hidden_where_there_is_no_terminal(program: Path) -> None:
    assert call(program, "with common.progress(3, 'rows', 'row') as bar: bar.update(3)") == (0, "", "")


def test_hidden_bar_does_not_load_its_library(program: Path) -> None:
    """It takes a tenth of the time that a program needs to start."""
    code = """
with common.progress(3, 'rows', 'row') as bar:
    bar.update(3)
    bar.set_postfix_str('so far')
    bar.clear()
print('tqdm' in sys.modules)
"""
    assert call(program, code) == (0, "False\n", "")


def test_count_in_a_bar_is_not_scaled(program: Path) -> None:
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 100))  # without a width a bar is empty
    code = "with common.progress(5000, 'rows', 'row') as bar: bar.update(1234); bar.refresh()"
    subprocess.run(line(program, code), env=ENVIRONMENT, stderr=theirs, check=True)
    shown = os.read(ours, 100_000)
    os.close(ours)
    os.close(theirs)
    assert b"1234/5000" in shown


@pytest.mark.parametrize("closed", [">&-", "<&- >&-", ">&- 2>&-"])
@pytest.mark.parametrize("code", ["click.echo(1)", "common.emit_json(1)", "sys.stdout.buffer.write(b'x')"])
def test_closed_stream_is_no_bug(program: Path, closed: str, code: str, tmp_path: Path) -> None:
    """Nor does a file that is opened later become that stream."""
    code = f"file = open({str(tmp_path / 'file')!r}, 'w'); {code}"
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *line(program, code)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (tmp_path / "file").read_bytes() == b""


def test_options_arrive(program: Path) -> None:
    status, stdout, _ = call(program, "common.emit_json([db, now, as_json])", "--db", "/x", "--now", "7", "--json")
    assert (status, json.loads(stdout)) == (0, ["/x", 7, True])
    assert call(program, "--version")[1].startswith("prog ")


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ("plain \u00e9\u4e2d\u3000\u00a0", "plain \u00e9\u4e2d\u3000\u00a0"),
        ("\x1b[31m", "\\x1b[31m"),
        ("\x9b2J", "\\x9b2J"),  # the one-byte form of ESC [
        ("a\r\n\tb", "a\\r\\n\\tb"),
        ("\u202egpj.exe", "\\u202egpj.exe"),  # right-to-left override
        ("\u2028", "\\u2028"),
        ("\ud800", "\\ud800"),
        (b"\xff\x1b", "\\xff\\x1b"),
    ],
)
def test_escape_leaves_nothing_that_steers(given: str | bytes, shown: str) -> None:
    assert common.escape(given) == shown


def test_json_is_plain_ascii(capsys: pytest.CaptureFixture[str]) -> None:
    common.emit_json({"t": "\u202e\x9b", "p": Path("a")})
    assert capsys.readouterr().out == '{"t": "\\u202e\\u009b", "p": "a"}\n'


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("raise errors.UsageError('no')", 2),
        ("raise errors.Corruption('no')", 11),
        ("1 / 0", 1),
        ("raise KeyboardInterrupt", 130),
        ("common.LOG.warning('no')", common.BROKEN_PIPE),
        ("click.echo(1)", 0),
    ],
)
def test_closed_stderr_does_not_change_the_exit_status(program: Path, code: str, status: int) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(line(program, code), env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=theirs, check=False)
    os.close(theirs)
    assert done.returncode == status

"""`shep completion`: what a shell offers when somebody presses the tab key, asked of a real bash."""

from __future__ import annotations

import subprocess

import pytest

from shepherd.cli.__main__ import PROGRAMS
from tests.support.page_states import ROOT
from tests.support.programs import call
from tests.support.waiting import PATIENCE_S

SHELLS = ("bash", "zsh", "fish")
ASK = """
source /dev/stdin
COMP_WORDS=({words}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
$(complete -p {program} | sed 's/.* -F \\([^ ]*\\) .*/\\1/') bin/{program} 2>&1
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def completions(line: str) -> list[str]:
    """What bash would complete the last word of a line to."""
    script = call("shep", "completion", "bash").stdout
    program = line.split()[0]
    command = ["bash", "--norc", "-c", ASK.format(words=f"bin/{line}", program=program)]
    done = subprocess.run(command, cwd=ROOT, input=script, capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert not done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("shep exp", ["explain"]),
        ("shep list --type ga", ["gathered"]),
        ("shep audit p", ["politeness"]),
        ("shepherd c", ["check-config", "cycle"]),
        ("shep-plan --dry", ["--dry-run"]),
        ("gather --scope s", ["site", "subdomains"]),
        ("shep completion z", ["zsh"]),
    ],
)
def test_tab_key_offers_the_words_that_fit(line: str, words: list[str]) -> None:
    assert completions(line) == words


@pytest.mark.parametrize("shell", SHELLS)
def test_every_program_is_completed_in_each_shell(shell: str) -> None:
    done = call("shep", "completion", shell)
    assert done.returncode == 0
    for program in PROGRAMS:
        assert f"_{program.upper().replace('-', '_')}_COMPLETE={shell}_complete" in done.stdout


def test_unknown_shell_is_refused() -> None:
    assert call("shep", "completion", "tcsh").returncode == 2
    assert call("shep", "url", "http://a.example/", _SHEP_COMPLETE="tcsh_source").returncode == 2

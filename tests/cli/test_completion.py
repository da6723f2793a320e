"""Shells complete commands, options and the names of protocols, metrics, methods and orders."""

import os
import subprocess
import sys

import pytest


def complete(words, **environment):
    """What bash is offered behind the words; an empty last word stands for a new one."""
    variables = {
        **os.environ,
        "_NOBACKFILL_COMPLETE": "complete_bash",
        "COMP_WORDS": " ".join(("nobackfill", *words)),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [sys.executable, "-m", "nobackfill"],
        env=variables | environment,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["ev"], {"evaluate"}),
        (["evaluate", "--"], {"--pairs", "--label", "--protocol", "--quiet", "--json"}),
        (["fit", "--me"], {"--method"}),
        (["gallery", "b"], {"backfill"}),
        (["gallery", "plan", "--"], {"--order", "--old", "--quiet"}),
        (["evaluate", "--protocol", "market"], {"market1501"}),
        (["gallery", "plan", "--order", "un"], {"uncertainty"}),
        (["fit", "--method", "cross"], {"cross_supcon"}),
    ],
)
def test_what_is_offered(words, offered):
    found = set(complete(words))
    assert offered <= found
    assert all(word.startswith(words[-1]) for word in found)


def test_the_script_can_be_shown_and_installed(tmp_path):
    call = [sys.executable, "-m", "nobackfill"]
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}  # not that of who runs the test
    environment = {**os.environ, "HOME": str(tmp_path), **named}
    shown = subprocess.run(
        [*call, "--show-completion", "bash"], env=environment, capture_output=True, text=True
    )
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "_NOBACKFILL_COMPLETE=complete_bash" in shown.stdout
    assert "complete -o default -F _nobackfill_completion nobackfill" in shown.stdout
    installed = subprocess.run(
        [*call, "--install-completion", "bash"], env=environment, capture_output=True, text=True
    )
    assert installed.returncode == 0
    script = tmp_path / ".bash_completions" / "nobackfill.sh"
    assert "_NOBACKFILL_COMPLETE" in script.read_text()
    assert str(script) in (tmp_path / ".bashrc").read_text()

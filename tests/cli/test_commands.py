"""The commands as a person or a script calls them: exit codes, stdout, and files left behind."""

import json
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.cli import output as show
from nobackfill.core.config import read_recipe
from nobackfill.core.console import PlainConsole
from nobackfill.errors import ConfigError
from nobackfill.methods import METHODS
from nobackfill.training.resolve import resolve

TINY = [
    "--set", "data.train_classes=20", "--set", "data.test_classes=5",
    "--set", "data.images_per_class=6", "--set", "data.side=16",
    "--set", "model.width=4", "--set", "model.embedding_dim=8",
    "--set", "train.epochs=2", "--set", "train.batch_size=16",
]  # fmt: skip


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Old vectors, better ones of the same space, and ones of another space."""
    folder = tmp_path_factory.mktemp("vectors")
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(20, 16, generator=generator)
    labels = np.arange(200) % 20

    def save(name, noise, axes=centre):
        values = axes[labels] + noise * torch.randn(200, 16, generator=generator)
        nb.Vectors(np.arange(200), values, labels).save(folder / f"{name}.parquet")

    save("old", 1.5)
    save("new", 0.5)
    save("stranger", 0.5, axes=torch.randn(20, 16, generator=generator))
    return folder


def test_evaluate_answers_with_one_json_object(command, files):
    code, out, _ = command(
        "evaluate", "--old", files / "old.parquet", "--new", files / "new.parquet",
        "--independent", files / "stranger.parquet", "--json",
    )  # fmt: skip
    result = json.loads(out)
    assert code == 0
    assert {
        "old_old", "new_old", "new_new", "independent", "p_up", "p_comp", "p_1", "compatible",
    } <= set(result)  # fmt: skip
    assert result["compatible"] is True
    assert 0 < result["old_old"] < result["new_old"] < 1
    assert 0 < result["independent"] < 1


def test_evaluate_tells_a_person(command, files):
    code, out, _ = command(
        "evaluate", "--old", files / "old.parquet", "--new", files / "new.parquet"
    )
    assert code == 0
    assert "Compatible" in out
    assert "old/old" in out


def test_a_verdict_of_no_is_one_only_if_it_is_asked_for(command, files):
    arguments = ["evaluate", "--old", files / "old.parquet", "--new", files / "stranger.parquet"]
    code, out, _ = command(*arguments)
    assert code == 0
    assert "Not compatible" in out
    assert command(*arguments, "--require-compatible")[0] == 1
    assert command(*arguments, "--require-compatible", "--json")[0] == 1


def test_what_may_be_chance_is_three_if_a_verdict_is_asked_for(command, files, tmp_path):
    old = nb.load_vectors(files / "old.parquet")
    jitter = 0.05 * torch.randn(old.vectors.shape, generator=torch.Generator().manual_seed(9))
    nb.Vectors(old.ids, old.vectors + jitter, old.labels).save(tmp_path / "same.parquet")
    arguments = ["evaluate", "--old", files / "old.parquet", "--new", tmp_path / "same.parquet"]
    code, out, _ = command(*arguments)
    assert code == 0
    assert "Undecided" in out
    assert "may be chance" in out
    assert command(*arguments, "--require-compatible")[0] == 3
    assert json.loads(command(*arguments, "--json")[1])["compatible"] is None


def test_what_counts_as_found_may_come_from_a_file(command, files, tmp_path):
    truth = tmp_path / "truth.jsonl"
    lines = [
        {"query": i, "relevant": [(i + 20) % 200], "ignored": [(i + 1) % 200]} for i in range(200)
    ]
    truth.write_text("\n".join(json.dumps(line) for line in lines))
    arguments = [
        "evaluate",
        "--old",
        files / "old.parquet",
        "--new",
        files / "new.parquet",
        "--json",
    ]
    labelled = json.loads(command(*arguments)[1])
    code, out, _ = command(*arguments, "--ground-truth", truth)
    assert code == 0
    assert json.loads(out)["old_old"] < labelled["old_old"]  # one to find, where there were nine
    assert command(*arguments, "--ground-truth", truth, "--level", "easy")[0] == 2


def damaged(files, tmp_path, what):
    """A file that `evaluate` cannot use as the new vectors."""
    good = nb.load_vectors(files / "new.parquet")
    path = tmp_path / "bad.parquet"
    if what == "missing":
        return path
    if what == "no parquet":
        path.write_text("id,vector\n1,2\n")
    elif what == "nan":
        path = tmp_path / "bad.npz"
        values = good.vectors.numpy().copy()
        values[3, 2] = np.nan
        np.savez(path, id=good.ids, vector=values, label=good.labels)
    elif what == "zero":
        path = tmp_path / "bad.npz"
        values = good.vectors.numpy().copy()
        values[3] = 0
        np.savez(path, id=good.ids, vector=values, label=good.labels)
    elif what == "other ids":
        nb.Vectors(good.ids + 1000, good.vectors, good.labels).save(path)
    elif what == "other dimension":
        nb.Vectors(good.ids, good.vectors[:, :7], good.labels).save(path)
    elif what == "other labels":
        nb.Vectors(good.ids, good.vectors, good.labels + 1).save(path)
    elif what == "no queries":
        none = np.zeros(len(good), dtype=bool)
        columns = {"is_query": none, "is_gallery": ~none}
        nb.Vectors(good.ids, good.vectors, good.labels, columns=columns).save(path)
    return path


@pytest.mark.parametrize(
    ("what", "says"),
    [
        ("missing", "bad.parquet"),
        ("no parquet", "bad.parquet"),
        ("nan", "NaN"),
        ("zero", "zero"),
        ("other ids", "same items"),
        ("other dimension", "old.parquet, but they have 7"),
        ("other labels", "same labels"),
        ("no queries", "0 queries"),
    ],
)
def test_what_cannot_be_used_is_two_and_says_why(command, files, tmp_path, what, says):
    path = damaged(files, tmp_path, what)
    code, out, err = command("evaluate", "--old", files / "old.parquet", "--new", path, "--json")
    assert code == 2
    assert out == ""
    assert says in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["evaluate", "--old", "x.parquet"], "--new"),
        (["evaluat"], "evaluat"),
        (["train", "nowhere.toml", "-o", "run"], "nowhere.toml"),
        (["embed", "nowhere", "nowhere", "-o", "x.parquet"], "nowhere"),
        (["methods", "--given", "prototype"], "Did you mean `prototypes`"),
    ],
)
def test_a_wrong_call_is_two(command, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    code, _, err = command(*arguments)
    assert code == 2
    assert says in err
    assert not list(tmp_path.iterdir())  # and leaves nothing behind


@pytest.mark.parametrize(
    ("folder", "found"),
    [("nowhere", "it does not exist"), (".", "it has neither config.toml nor config.json")],
)
def test_embed_wants_a_run_or_a_head(command, tmp_path, monkeypatch, folder, found):
    monkeypatch.chdir(tmp_path)
    code, _, err = command("embed", folder, "new.parquet", "-o", "x.parquet")
    assert code == 2
    assert f"{folder} is not the folder of a run or a head: {found}. Pass" in err


def test_an_old_model_that_was_not_trained_yet_is_two(command, tmp_path, monkeypatch):
    (tmp_path / "new.toml").write_text('[method]\nname = "ndpp"\n[old]\nrun = "runs/old"\n')
    monkeypatch.chdir(tmp_path)
    code, _, err = command("train", "new.toml", "-o", "runs/new")
    assert code == 2
    assert '`run = "runs/old"` in [old] is not a run folder' in err
    assert "`nobackfill train RECIPE -o runs/old`" in err


def test_bare_arrays_are_told_where_labels_may_come_from(command, files, tmp_path):
    for name in ("old", "new"):
        array = nb.load_vectors(files / f"{name}.parquet").vectors.numpy()
        np.save(tmp_path / f"{name}.npy", array)
    bare = ("evaluate", "--old", tmp_path / "old.npy", "--new", tmp_path / "new.npy")
    code, out, _ = command(*bare)
    assert code == 3
    assert "Quality was not measured" in out
    assert "name a column of labels (--label) or a file of pairs (--pairs)" in out
    (tmp_path / "rows.csv").write_text("query,relevant\n0,20\n21,1\n")  # ids are row numbers
    assert command(*bare, "--ground-truth", tmp_path / "rows.csv")[0] == 0
    labelled = command(*bare[:3], "--new", files / "new.parquet", "--json")
    told = command("evaluate", "--old", files / "old.parquet", *bare[3:], "--json")
    assert json.loads(labelled[1])["new_old"] == json.loads(told[1])["new_old"]


def test_a_place_that_cannot_be_written_is_two(command, files, tmp_path):
    (tmp_path / "file").write_text("in the way")
    recipe = tmp_path / "recipe.toml"
    names = {"data": "glyphs", "model": "small", "method": "independent"}
    recipe.write_text("".join(f'[{table}]\nname = "{name}"\n' for table, name in names.items()))
    code, _, err = command("train", recipe, "-o", tmp_path / "file", *TINY)
    assert code == 2
    assert "Cannot write" in err
    assert "Traceback" not in err


def test_an_unexpected_error_is_two_as_well(command, files, monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("nobackfill.evaluation.evaluate.plan_upgrade", broken)
    code, out, err = command(
        "evaluate", "--old", files / "old.parquet", "--new", files / "new.parquet", "--json"
    )
    assert code == 2
    assert out == ""
    assert "unexpected ZeroDivisionError: a bug" in err


def test_the_whole_journey(command, tmp_path, monkeypatch):
    recipes = nb.__path__[0].rsplit("src", 1)[0] + "recipes/glyphs"
    monkeypatch.chdir(tmp_path)
    assert command("train", f"{recipes}/old.toml", "-o", "runs/old", *TINY)[0] == 0
    code, out, err = command(
        "train", f"{recipes}/ndpp.toml", "-o", "runs/ndpp", *TINY, "--json", "--device", "cpu"
    )
    assert code == 0
    trained = json.loads(out)
    assert "epoch 2/2" in err
    for name in ("old", "ndpp"):
        code, out, _ = command(
            "embed", f"runs/{name}", "runs/ndpp", "--split", "validation", "-o", f"{name}.parquet"
        )
        assert code == 0
        assert "40 vectors of 8 dimensions are in" in out
    code, out, _ = command("evaluate", "--old", "old.parquet", "--new", "ndpp.parquet", "--json")
    assert code == 0
    assert json.loads(out)["new_old"] == trained["evaluation"]["new_old"]
    notes = [note for note in json.loads(out)["notes"] if "interval" not in note]  # 5 are too few
    assert notes == []  # both spaces are declared, and belong together
    code, _, err = command("train", f"{recipes}/ndpp.toml", "-o", "runs/ndpp", *TINY)
    assert code == 2
    assert "--resume" in err


def test_dry_run_plans_for_people_and_trains_nothing(command, tmp_path, monkeypatch):
    (tmp_path / "recipe.toml").write_text(
        '[method]\nname = "odpp"\n[old]\nrun = "runs/old"\n[data]\nname = "glyphs"\n'
        '[model]\nname = "small"\n[expected]\nsource = "a paper"\ntrain_classes = 21\np_1 = 51.5\n'
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = command("train", "recipe.toml", "-o", "run", *TINY, "--dry-run")
    assert code == 0
    words = " ".join(out.split())
    assert "odpp → run" in words
    assert "glyphs: 120 images of 20 classes; 40 searched" in words
    assert "train classes: 20 found, 21 expected" in words
    assert "steps 16: 2 epochs of 8, 16 images each" in words
    assert "old model prototypes: " in words
    assert "expected a paper: p_1 51.5" in words
    assert [path.name for path in tmp_path.iterdir()] == ["recipe.toml"]


def test_dry_run_writes_out_every_default_for_programs(command, tmp_path, monkeypatch):
    (tmp_path / "recipe.toml").write_text('[method]\nname = "odpp"\n')
    monkeypatch.chdir(tmp_path)
    code, out, _ = command("train", "recipe.toml", "-o", "run", "--dry-run", "--seed", 5, "--json")
    assert code == 0
    (job,) = json.loads(out)["jobs"]
    assert "old_threshold = 0.6" in job["recipe"]
    assert (job["name"], job["folder"], job["is_there"], job["problem"]) == (
        "odpp", "run", False, "",
    )  # fmt: skip
    assert job["steps"]["in_all"] == 30 * job["steps"]["each_epoch"]
    assert job["parameters"] > 0
    assert not (tmp_path / "run").exists()
    (tmp_path / "again.toml").write_text(job["recipe"])  # a recipe that says the same
    recipe = resolve(read_recipe(tmp_path / "recipe.toml", ["train.seed=5"]))
    assert resolve(read_recipe(tmp_path / "again.toml")) == recipe


def test_dry_run_tells_of_data_that_are_not_there(command, tmp_path, monkeypatch):
    (tmp_path / "recipe.toml").write_text(
        '[data]\nname = "market1501"\npath = "nowhere"\n[images]\nchannels = 1\ncrop = [16, 16]\n'
        "[expected]\ntrain_images = 500\ntrain_classes = 30\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, _ = command("train", "recipe.toml", "-o", "run", "--dry-run")
    assert code == 0
    words = " ".join(out.split())
    assert "market1501: not counted (expected: 500 train_images, 30 train_classes)" in words
    assert "No collection at nowhere" in words
    code, out, _ = command("train", "recipe.toml", "-o", "run", "--dry-run", "--json")
    assert (code, "nowhere" in json.loads(out)["jobs"][0]["problem"]) == (0, True)


@pytest.mark.parametrize("place", ["run[v2]", "run[/v2]"])
def test_dry_run_names_places_as_they_are(command, tmp_path, monkeypatch, place):
    (tmp_path / "recipe.toml").write_text('[data]\nname = "glyphs"\n[model]\nname = "small"\n')
    monkeypatch.chdir(tmp_path)
    assert place in command("train", "recipe.toml", "-o", place, *TINY, "--dry-run")[1]


@pytest.fixture
def glyph_recipes(tmp_path, monkeypatch):
    """Recipes of an old model, of a new one that names it, and of a sequence."""
    monkeypatch.chdir(tmp_path)
    data = '[data]\nname = "glyphs"\n[model]\nname = "small"\nwidth = 4\nembedding_dim = 8\n'
    few = "epochs = 2\nbatch_size = 16\n"
    (tmp_path / "first.toml").write_text(f"{data}[train]\nstep = 0\n{few}")
    new = f'{data}[method]\nname = "ndpp"\n[train]\n{few}'
    (tmp_path / "new.toml").write_text(f'{new}[old]\nrecipe = "first.toml"\n')
    steps = "[[sequence]]\ntrain.step = 0\nmethod.name = 'independent'\n[[sequence]]\n"
    (tmp_path / "sequence.toml").write_text(new + steps)
    return tmp_path


def test_a_new_model_and_its_old_one_are_trained_by_one_command(command, glyph_recipes):
    code, out, err = command("train", "new.toml", "-o", "runs/new", *TINY, "--json")
    assert code == 0
    result = json.loads(out)
    assert result["run"] == "runs/new"
    assert err.index("first") < err.index("ndpp")
    old, new = (nb.load_vectors(f"runs/{name}/validation.parquet") for name in ("first", "new"))
    assert new.space.parent == old.space.fingerprint
    assert result["evaluation"]["new_old"] == nb.evaluate(old, new).summary()["new_old"]
    before = (glyph_recipes / "runs/first/model.safetensors").stat().st_mtime_ns
    code, _, err = command("train", "new.toml", "-o", "runs/other", *TINY, "--seed", 3)
    assert code == 0
    assert "already trained" in err  # the old model, once is enough
    assert (glyph_recipes / "runs/first/model.safetensors").stat().st_mtime_ns == before
    code, _, err = command("train", "new.toml", "-o", "runs/new", *TINY)
    assert code == 2
    assert "--resume" in err  # what was asked for is never overwritten
    assert command("train", "new.toml", "-o", "runs/new", *TINY, "--resume")[0] == 0


def test_dry_run_tells_what_is_trained_first_and_what_is_there(command, glyph_recipes):
    arguments = ("train", "new.toml", "-o", "runs/new", *TINY, "--dry-run", "--json")
    jobs = json.loads(command(*arguments)[1])["jobs"]
    assert [(job["name"], job["is_there"]) for job in jobs] == [("first", False), ("ndpp", False)]
    assert [job["counts"]["train_classes"] for job in jobs] == [6, 20]
    assert command("train", "first.toml", "-o", "runs/first", *TINY[:8])[0] == 0
    jobs = json.loads(command(*arguments)[1])["jobs"]
    assert [(job["name"], job["is_there"]) for job in jobs] == [("first", True), ("ndpp", False)]
    assert "first → runs/first (finished)" in command(*arguments[:-1])[1]


def test_a_sequence_prints_its_matrix(command, glyph_recipes):
    code, out, _ = command("train", "sequence.toml", "-o", "runs/s", *TINY, "--json")
    assert code == 0
    summary = json.loads(out)
    told = json.loads((glyph_recipes / "runs/s/sequence.json").read_text())
    assert summary == {"run": "runs/s", **told}
    result = json.loads((glyph_recipes / "runs/s/2/evaluation.json").read_text())
    assert summary["matrix"] == [
        [pytest.approx(result["old_old"])],
        [pytest.approx(result["new_old"]), pytest.approx(result["new_new"])],
    ]
    code, out, _ = command("train", "sequence.toml", "-o", "runs/s", *TINY, "--resume")
    assert code == 0
    rows = [line.split() for line in out.splitlines()]
    (own,), (before, after) = [[f"{100 * value:.2f}" for value in row] for row in summary["matrix"]]
    sign = "▲" if summary["ac"] == 1 else "▼"
    assert ["1", "independent", own, "●", "–"] in rows
    assert ["2", "ndpp", before, sign, after, "●"] in rows
    assert f"AC {summary['ac']:.2f}: " in out
    assert f"AM {summary['am']:.3f}: " in out
    assert command("train", "sequence.toml", "-o", "runs/s", *TINY)[0] == 2


def test_losses_go_to_tensorboard_if_asked(command, glyph_recipes):
    assert command("train", "first.toml", "-o", "runs/plain", *TINY)[0] == 0
    assert not (glyph_recipes / "runs/plain/tensorboard").exists()
    assert command("train", "new.toml", "-o", "runs/new", *TINY, "--tensorboard")[0] == 0
    for name in ("first", "new"):
        (file,) = (glyph_recipes / "runs" / name / "tensorboard").iterdir()
        assert b"loss/classification" in file.read_bytes()
    assert b"loss/compatibility" in file.read_bytes()


def test_train_says_how_images_are_decoded(command, glyph_recipes, monkeypatch):
    def train_run(recipe, folder, *, decoding, device, **options):
        raise ConfigError(f"{decoding.workers} {decoding.keep} {device} {options['resume']}")

    monkeypatch.setattr("nobackfill.training.pipeline.train_run", train_run)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(5), raising=False)
    train = ("train", "first.toml", "-o", "run", "--device", "cpu")
    assert "5 False cpu False" in command(*train)[2]
    assert "0 False cpu False" in command(*train, "--workers", 0)[2]
    assert "3 True cpu True" in command(*train, "--workers", 3, "--keep-images", "--resume")[2]
    monkeypatch.setattr("os.sched_getaffinity", lambda _: range(64), raising=False)
    assert "16 False" in command(*train)[2]  # no more than that, unless asked for
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert "8 False" in command(*train)[2]  # cores are shared


def test_old_vectors_remind_of_the_prototypes_they_give(command):
    assert "add --given prototypes" in command("methods", "--given", "embeddings")[1]
    both = ("--given", "embeddings", "--given", "prototypes")
    assert "add --given" not in command("methods", *both)[1]
    assert "add --given" not in command("methods")[1]


def test_methods_by_what_is_given(command):
    code, out, _ = command("methods", "--given", "prototypes", "--json")
    usable = {row["name"]: row["usable"] for row in json.loads(out)["methods"]}
    assert code == 0
    assert usable["ndpp"]
    assert usable["independent"]
    assert not usable["bct"]
    assert "bct (classifier)" in command("methods", "--given", "prototypes")[1]


def test_methods_can_be_read_by_a_program(command):
    rows = {row["name"]: row for row in json.loads(command("methods", "--json")[1])["methods"]}
    assert list(rows) == list(METHODS)
    assert rows["bct"] == {
        "name": "bct",
        "paper": "Shen et al., CVPR",
        "year": 2020,
        "needs": ["classifier"],
        "at_inference": "nothing",
        "supervised": True,
        "says": "Adds to the new classification loss that of the old classifier on the same "
        "embedding.",
        "usable": True,
    }
    assert rows["mimic"]["supervised"] is False
    assert rows["mimic"]["year"] is None
    for name in ("ndpp", "odpp", "ndpp_old", "odpp_old"):  # the same paper as the Baseline
        assert (rows[name]["paper"], rows[name]["year"]) == ("Zhou et al., arXiv", 2025)


def methods_at(width, command, monkeypatch, *arguments):
    """What `methods` prints on a terminal of some width, as lines."""
    monkeypatch.setattr(show, "console", PlainConsole(width=width))
    return [line.rstrip() for line in command("methods", *arguments)[1].splitlines()]


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_methods_fit_the_terminal_and_no_name_is_broken(command, monkeypatch, width):
    lines = methods_at(width, command, monkeypatch)
    assert max(map(len, lines)) <= width
    assert not any("…" in line for line in lines)
    first_words = [line.split(" ")[0] for line in lines]
    assert all(name in first_words for name in METHODS)


def test_methods_have_every_column(command, monkeypatch):
    lines = methods_at(80, command, monkeypatch)
    assert lines[0].split() == "method paper year needs inference cost".split()
    cells = {line.split("  ")[0]: f"{line}{after}" for line, after in pairwise(lines)}
    for cell in ("Shen et al.,", "CVPR", "2020", "classifier", "nothing"):
        assert cell in cells["bct"]
    assert "a map on each" in cells["rm"]
    assert "--json" in lines[-1]  # where the sentences are
    assert "paper" not in methods_at(60, command, monkeypatch)[1]


def test_methods_say_what_they_do_where_there_is_room(command, monkeypatch):
    sentence = "Adds to the new classification loss the distance to the old model's outputs."
    says = f"{'lwf':28}{sentence}"
    assert says in methods_at(120, command, monkeypatch)
    assert says not in methods_at(119, command, monkeypatch)


def test_methods_that_need_more_are_not_in_the_table(command, monkeypatch):
    given = ["--given", "classifier", "--given", "embeddings"]
    lines = methods_at(200, command, monkeypatch, *given)
    first_words = [line.split(" ")[0] for line in lines]
    assert {"bct", "lwf", "ract", "cores"} <= set(first_words)
    assert not {"ndpp", "dual_tuning"} & set(first_words)
    assert "ndpp (prototypes)" in " ".join(lines)


def test_version_and_help(command):
    assert command("--version")[:2] == (0, f"nobackfill {nb.__version__}\n")
    assert "evaluate" in command("--help")[1]


def test_the_installed_command_runs():
    result = subprocess.run(
        [sys.executable, "-m", "nobackfill", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout.strip() == f"nobackfill {nb.__version__}"


def test_evaluate_passes_its_options_on(command, files, tmp_path):
    new = nb.load_vectors(files / "new.parquet")
    new.select(np.arange(1, len(new))).save(tmp_path / "fewer.parquet")
    code, out, _ = command(
        "evaluate", "--old", files / "old.parquet", "--new", tmp_path / "fewer.parquet",
        "--intersect", "--protocol", "gldv2", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["num_queries"] == 199
    assert json.loads(out)["protocol"] == "gldv2"


def test_a_run_is_resumed_if_asked(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipe.toml").write_text('[data]\nname = "glyphs"\n[model]\nname = "small"\n')
    assert command("train", "recipe.toml", "-o", "run", *TINY)[0] == 0
    assert command("train", "recipe.toml", "-o", "run", *TINY, "--resume")[0] == 0


def test_the_demo_gets_its_seed(command, tmp_path, monkeypatch):
    def run_demo(folder, **options):
        raise ConfigError(f"seed {options['seed']}")

    monkeypatch.setattr("nobackfill.training.demo.run_demo", run_demo)
    assert "seed 5" in command("demo", "-o", tmp_path, "--seed", 5)[2]


def test_evaluate_takes_mapped_queries_and_an_independent_model(command, files, tmp_path):
    def longer(name):
        file = nb.load_vectors(files / f"{name}.parquet")
        values = torch.cat([file.vectors, file.vectors[:, :4]], dim=1)
        nb.Vectors(file.ids, values, file.labels).save(tmp_path / f"{name}.parquet")
        return nb.load_vectors(tmp_path / f"{name}.parquet")

    old, query = (nb.load_vectors(files / f"{name}.parquet") for name in ("old", "new"))
    new, alone = longer("stranger"), longer("new")
    code, out, _ = command(
        "evaluate", "--old", files / "old.parquet", "--new", tmp_path / "stranger.parquet",
        "--query-for-old", files / "new.parquet", "--independent", tmp_path / "new.parquet",
        "--json",
    )  # fmt: skip
    assert code == 0
    expected = nb.evaluate(old, new, query_for_old=query, independent=alone).summary()
    assert json.loads(out) == expected
    assert expected["new_old"] == nb.evaluate(old, query).summary()["new_old"]
    assert expected["independent"] == nb.evaluate(alone, alone).summary()["old_old"]


def test_evaluate_shows_the_independent_model_too(command, files):
    _, out, _ = command(
        "evaluate", "--old", files / "old.parquet", "--new", files / "new.parquet",
        "--independent", files / "stranger.parquet",
    )  # fmt: skip
    assert [line.split()[0] for line in out.splitlines()[3:7]] == [
        "old/old", "new/old", "new/new", "independent",
    ]  # fmt: skip


def test_embed_passes_its_options_on(command, tmp_path, monkeypatch):
    def embed_collection(model, data, *, split, side, decoding, device, watch):
        raise ConfigError(f"{model} {data} {split} {side} {device} {decoding.workers}")

    monkeypatch.setattr("nobackfill.training.embed.embed_collection", embed_collection)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").touch()
    told = ("--split", "train", "--side", "query", "--device", "cpu", "-o", tmp_path / "v.npz")
    told += ("--workers", 3)
    assert "run recipe.toml train query cpu 3" in command("embed", "run", "recipe.toml", *told)[2]
    told = ("--device", "cpu", "-o", tmp_path / "v.npz")
    assert "run recipe.toml all gallery cpu" in command("embed", "run", "recipe.toml", *told)[2]


def test_all_that_a_method_needs_must_be_given(command):
    def usable(*given):
        told = [word for need in given for word in ("--given", need)]
        rows = json.loads(command("methods", *told, "--json")[1])["methods"]
        return {row["name"] for row in rows if row["usable"]}

    assert "bt2" not in usable("prototypes", "embeddings")
    assert "bt2" in usable("prototypes", "embeddings", "independent")
    for given in (["embeddings"], ["prototypes", "classifier"]):
        assert usable(*given) == {n for n, m in METHODS.items() if m.needs <= set(given)}
    code, _, err = command("methods", "--given", "prototype")
    assert code == 2
    assert "unknown part `prototype` of an old model. Did you mean `prototypes`?" in err


def test_methods_name_each_other_as_they_are_called(command):
    rows = json.loads(command("methods", "--json")[1])["methods"]
    assert not any(f"`{m.__name__}`" in row["says"] for row in rows for m in METHODS.values())
    assert {row["name"]: row["at_inference"] for row in rows}["rm"] == "a map on each query"

"""`nobackfill fit`, then `embed` and `evaluate`, as a person and as a program call them."""

import json
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import nobackfill as nb
from nobackfill.cli.fit import print_head
from nobackfill.head.schedule import Progress
from nobackfill.vectors.space import Space

LABELS = np.arange(240) % 24
QUICK = ["--epochs", "2", "--hidden", "8", "--device", "cpu"]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Half of the classes to fit on, half to be searched; the new model has another dimension."""
    folder = tmp_path_factory.mktemp("vectors")
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(24, 6, generator=generator)[LABELS]
    new = centre + 0.2 * torch.randn(240, 6, generator=generator)
    turn = torch.randn(6, 5, generator=generator)
    old = (centre + 0.8 * torch.randn(240, 6, generator=generator)) @ turn
    columns = {
        "split": np.where(LABELS < 12, "train", "validation"),
        "scene": np.array([f"scene {label}" for label in LABELS]),
    }
    nb.Vectors(np.arange(240), old, LABELS, columns=columns).save(folder / "old.parquet")
    nb.Vectors(np.arange(240), new, LABELS, columns=columns).save(folder / "new.parquet")
    bare = {"split": columns["split"]}
    nb.Vectors(np.arange(240), new, columns=bare).save(folder / "bare new.parquet")
    nb.Vectors(np.arange(240), old, columns=bare).save(folder / "bare old.parquet")
    lines = [{"query": i, "relevant": [i + 24]} for i in range(216)]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, lines)))
    rows = ["query,relevant", *(f"{i},{i + 24}" for i in range(216))]
    (folder / "pairs.csv").write_text("\n".join(rows))
    (folder / "pairs.tsv").write_text("\n".join(rows).replace(",", "\t"))
    table = pa.table({"query": range(216), "relevant": range(24, 240)})
    pq.write_table(table, folder / "pairs.parquet")
    return folder


@pytest.fixture
def fit(command, files, tmp_path):
    def run(*arguments, prefix=""):
        names = [files / f"{prefix}{side}.parquet" for side in ("old", "new")]
        given = ["--old", names[0], "--new", names[1], "-o", tmp_path / "head", *QUICK]
        return command("fit", *given, "--overwrite", *arguments)

    return run


def test_fit_embed_evaluate(fit, command, files, tmp_path):
    code, out, _ = fit()
    assert code == 0
    assert "new/old on held-out classes" in out
    assert f"nobackfill embed {tmp_path / 'head'} NEW" in out
    made = tmp_path / "compatible.parquet"
    code, out, _ = command(
        "embed", tmp_path / "head", files / "new.parquet", "-o", made, "--json", "--device", "cpu"
    )
    assert (code, json.loads(out)) == (0, {"output": str(made), "items": 240, "dim": 5})
    vectors, head = nb.load_vectors(made), nb.CompatibleHead.from_pretrained(tmp_path / "head")
    new = nb.load_vectors(files / "new.parquet")
    assert vectors.vectors.equal(head.transform(new.vectors))
    assert vectors.labels.tolist() == LABELS.tolist()
    assert vectors.columns["scene"].tolist() == new.columns["scene"].tolist()
    assert vectors.space == head.space_
    code, out, _ = command(
        "evaluate", "--old", files / "old.parquet", "--new", made, "--json", "--device", "cpu"
    )
    found = json.loads(out)
    assert found["num_queries"] == 120  # of the classes that were not fitted on
    assert found["metrics"]["new_old"]["map"] > found["metrics"]["old_old"]["map"]


def test_programs_get_one_object(fit, tmp_path):
    code, out, err = fit("--json", "--method", "ract", "--seed", "3")
    assert (code, err) == (0, "")
    found, head = json.loads(out), nb.CompatibleHead.from_pretrained(tmp_path / "head")
    progress = head.progress_
    assert found == {
        "head": str(tmp_path / "head"),
        "onnx": None,
        "supervision": "labels",
        "method": "ract",
        "tried": {},
        "blend": 1.0,
        "closed_forms": progress.closed,
        "start": progress.start,
        "round_kept": progress.best,
        "held_out_new_old": max([*progress.closed.values(), *progress.history]),
        "held_out_old_old": progress.old_old,
        "gain": progress.gain,
        "old_weight": None,
        "held_out_by_old_weight": {},
        "held_out_new_new": progress.stored,
        "stores": head.stores,
        "notes": [],
    }
    assert (head.method, head.seed, head.epochs, head.hidden) == ("ract", 3, 2, 8)


@pytest.mark.parametrize("together", [1, 4])
def test_it_does_what_python_does(fit, files, tmp_path, together):
    fit("--json", "--together", together)
    old, new = (nb.load_vectors(files / f"{side}.parquet") for side in ("old", "new"))
    rows = old.columns["split"] == "train"
    same = nb.CompatibleHead(epochs=2, hidden=8, together=together)
    same.fit(new.select(rows), old.select(rows))
    read = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    assert read.transform(new.vectors).equal(same.transform(new.vectors))


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["--label", "scene"], "labels"),
        (["--group", "scene"], "groups"),
        (["--pairs", "pairs.jsonl"], "pairs"),
    ],
)
def test_what_belongs_together_may_be_told_otherwise(fit, files, arguments, kind):
    arguments = [files / one if one.endswith(".jsonl") else one for one in arguments]
    expected = json.loads(fit("--json")[1])
    code, out, _ = fit("--json", *arguments)
    found = json.loads(out)
    assert (code, found["supervision"], found["notes"]) == (0, kind, [])
    assert set(found["closed_forms"]) == set(expected["closed_forms"])
    assert found["held_out_new_old"] > 0


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_pairs_from_a_table_are_those_of_lines(fit, files, tmp_path, suffix):
    heads = []
    for name in ("pairs.jsonl", f"pairs{suffix}"):
        assert fit("--pairs", files / name, prefix="bare ")[0] == 0
        heads.append(nb.CompatibleHead.from_pretrained(tmp_path / "head"))
    assert [head.supervision_ for head in heads] == ["pairs", "pairs"]
    assert heads[0].space_ == heads[1].space_


def test_the_help_names_both_forms_of_pairs(command):
    told = " ".join(command("fit", "--help")[1].replace("│", " ").split())
    assert '{"query": …, "relevant": […]}' in told
    assert "columns query and relevant (.csv, .tsv, .parquet)" in told


def test_labels_that_disagree_are_two(fit, files, tmp_path):
    new = nb.load_vectors(files / "new.parquet")
    wrong = nb.Vectors(new.ids, new.vectors, np.where(LABELS == 3, 4, LABELS))
    wrong.save(tmp_path / "wrong.parquet")
    code, out, err = fit("--new", tmp_path / "wrong.parquet")
    assert (code, out) == (2, "")
    paths = files / "old.parquet", tmp_path / "wrong.parquet"
    differ = "10 items differ: 3 is 3 in {} and 4 in {}".format(*paths)
    assert differ in " ".join(err.split())
    assert not (tmp_path / "head").exists()


def test_without_classes_a_note_says_what_it_is(fit):
    code, out, _ = fit("--json", prefix="bare ")
    found = json.loads(out)
    assert (code, found["supervision"], found["held_out_new_old"]) == (0, "none", None)
    assert set(found["closed_forms"].values()) == {None}
    assert "Note: no supervision was used" in fit(prefix="bare ")[1]


@pytest.fixture
def told(tmp_path, capsys):
    """What is printed of a fit that went in some way."""
    new, old = torch.randn(4, 3), torch.randn(4, 2)

    def run(**went):
        head = nb.CompatibleHead().fit(new, old)
        head.notes_ = ()
        head.progress_ = Progress({"procrustes": 0.25}, "procrustes", **went)
        print_head(head, tmp_path, as_json=True)
        found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
        print_head(head, tmp_path, as_json=False)
        return found, capsys.readouterr().out

    return run


def test_the_round_that_was_kept_is_the_one_that_is_told(told):
    found, text = told(history=[0.3, 0.5, 0.4], best=2, method="cross_supcon")
    assert (found["round_kept"], found["held_out_new_old"]) == (2, 0.5)
    assert "25.00 mAP in closed form (procrustes), 50.00 after 2 rounds of cross_supcon." in text


def test_training_that_gains_nothing_says_so(fit, told):
    assert "no improvement after 0 rounds" in fit("--epochs", "0", "--method", "mimic")[1]
    found, text = told(history=[0.2, 0.1], method="cross_supcon")
    assert (found["round_kept"], found["held_out_new_old"]) == (0, 0.25)
    assert "no improvement after 2 rounds of cross_supcon." in text


def test_pairs_that_chain_much_into_one_class_get_a_note(fit, files, tmp_path):
    path = tmp_path / "pairs.csv"
    more = "\n0,1\n0,2"  # joins three of the 12 classes that are fitted on
    path.write_text((files / "pairs.csv").read_text() + more)
    note = "30 of 120 items in pairs are linked into one class"
    code, out, _ = fit("--pairs", path, prefix="bare ")
    assert code == 0
    assert f"Note: {note}" in out
    (found,) = json.loads(fit("--pairs", path, "--json", prefix="bare ")[1])["notes"]
    assert found.startswith(note)
    assert "Note" not in fit("--pairs", files / "pairs.jsonl", prefix="bare ")[1]


def test_extra_dimensions_from_fit_to_evaluate(fit, command, files, tmp_path):
    scores = []
    for extra in (0, 4):
        code, _, _ = fit("--extra", extra)
        made = tmp_path / f"compatible {extra}.parquet"
        given = ["embed", tmp_path / "head", files / "new.parquet", "-o", made, "--json"]
        assert (code, json.loads(command(*given)[1])["dim"]) == (0, 5 + extra)
        given = ["evaluate", "--old", files / "old.parquet", "--new", made, "--json"]
        scores.append(json.loads(command(*given)[1])["metrics"])
    vectors = nb.load_vectors(made)
    assert (vectors.dim, vectors.compatible_dim) == (9, 5)
    assert scores[0]["old_old"] == scores[1]["old_old"]
    assert scores[0]["new_old"] == scores[1]["new_old"]  # to the bit
    assert scores[0]["new_new"]["map"] < scores[1]["new_new"]["map"]


def test_time_that_is_up_is_told(fit):
    code, out, _ = fit("--seconds", "1e-9", "--epochs", "50")
    assert code == 0
    assert "Note: the limit of 1e-09 seconds ended training after 0 of" in out


def test_labels_that_are_not_used_may_disagree(fit, files, tmp_path):
    new = nb.load_vectors(files / "new.parquet")
    wrong = nb.Vectors(new.ids, new.vectors, LABELS[::-1].copy(), columns=new.columns)
    wrong.save(tmp_path / "wrong.parquet")
    for told in (["--pairs", files / "pairs.jsonl"], ["--label", "scene"], ["--group", "scene"]):
        code, _, err = fit("--new", tmp_path / "wrong.parquet", *told)
        assert (code, err) == (0, "")


def test_an_onnx_file_beside_the_head(fit, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    code, out, _ = fit("--json", "--onnx", tmp_path / "head.onnx")
    assert (code, json.loads(out)["onnx"]) == (0, str(tmp_path / "head.onnx"))
    new = np.ones((3, 6), np.float32)
    (made,) = runtime.InferenceSession(tmp_path / "head.onnx").run(None, {"new": new})
    head = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    np.testing.assert_allclose(made, head.transform(new), atol=1e-5)


def test_without_onnx_nothing_is_begun(fit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    code, out, err = fit("--onnx", tmp_path / "head.onnx")
    assert (code, out) == (2, "")
    assert "pip install 'nobackfill[onnx]'" in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--label", "scen"], "Did you mean `scene`"),
        (["--group", "nothing"], "no column `nothing`"),
        (["--group", "scene", "--pairs", "pairs.jsonl"], "--pairs and --group"),
        (["--pairs", "gone.jsonl"], "gone.jsonl"),
        (["--method", "bct"], "fitted by `bct`"),
        (["--method", "cross_supkon"], "Did you mean `cross_supcon`"),
        (["--epochs", "-1"], "`epochs` must be 0 or more"),
        (["--extra", "-1"], "`extra` must be 0 or more"),
        (["--extra", "7"], "`extra` must be at most 6"),
        (["--seconds", "-1"], "`seconds` must be 0 or more"),
        (["--old", "gone.parquet"], "gone.parquet"),
    ],
)
def test_what_cannot_be_fitted_is_two(fit, arguments, says, tmp_path):
    code, out, err = fit(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert not (tmp_path / "head").exists()


def test_a_file_in_the_place_of_the_folder_is_told_at_once(fit, tmp_path):
    (tmp_path / "head").write_text("not a folder")
    code, _, err = fit()
    assert code == 2
    assert "is a file" in err
    assert (tmp_path / "head").read_text() == "not a folder"


def test_a_damaged_head_embeds_nothing(fit, command, files, tmp_path):
    fit()
    (tmp_path / "head" / "model.safetensors").write_bytes(b"half")
    code, out, err = command(
        "embed", tmp_path / "head", files / "new.parquet", "-o", tmp_path / "out.parquet"
    )
    assert (code, out) == (2, "")
    assert "model.safetensors cannot be read" in err
    assert not (tmp_path / "out.parquet").exists()


def test_a_head_refuses_vectors_of_another_model(fit, command, files, tmp_path):
    fit()
    code, _, err = command(
        "embed", tmp_path / "head", files / "old.parquet", "-o", tmp_path / "out.parquet"
    )
    assert code == 2
    assert "fitted on new vectors of 6 dimensions" in err


def test_a_head_refuses_vectors_of_another_space(fit, command, files, tmp_path):
    new = nb.load_vectors(files / "new.parquet")
    for name in ("new", "newer"):
        space = Space(dim=6, weights=name)
        known = nb.Vectors(new.ids, new.vectors, new.labels, columns=new.columns, space=space)
        known.save(tmp_path / f"{name}.parquet")
    assert fit("--new", tmp_path / "new.parquet", "--epochs", "0")[0] == 0
    made = tmp_path / "out.parquet"
    code, out, err = command("embed", tmp_path / "head", tmp_path / "newer.parquet", "-o", made)
    assert (code, out) == (2, "")
    assert "Pass vectors of the same new model" in " ".join(err.split())
    assert not made.exists()
    for name in (tmp_path / "new.parquet", files / "new.parquet"):  # of the same, or of no space
        assert command("embed", tmp_path / "head", name, "-o", made)[0] == 0


@pytest.fixture
def plainly(command, files, tmp_path):
    """Fits without --overwrite."""
    given = ["--old", files / "old.parquet", "--new", files / "new.parquet", *QUICK]
    return lambda *arguments: command("fit", *given, "-o", tmp_path / "head", *arguments)


def test_a_trained_run_stays_as_it_is(plainly, tmp_path):
    run = tmp_path / "head"
    run.mkdir()
    for name in ("config.toml", "model.safetensors"):
        (run / name).write_text("trained for days")
    for arguments in ([], ["--overwrite"]):
        code, out, err = plainly(*arguments)
        assert (code, out) == (2, "")
        assert "holds a trained run. Choose another folder for the head." in " ".join(err.split())
    assert {path.name: path.read_text() for path in run.iterdir()} == {
        "config.toml": "trained for days",
        "model.safetensors": "trained for days",
    }


def test_a_head_is_replaced_only_if_asked(plainly, tmp_path):
    assert plainly("--json")[0] == 0
    before = (tmp_path / "head" / "config.json").read_bytes()
    code, out, err = plainly("--epochs", "0")
    assert (code, out) == (2, "")
    assert "holds a head. Replace it by --overwrite" in " ".join(err.split())
    assert (tmp_path / "head" / "config.json").read_bytes() == before
    assert plainly("--overwrite", "--old", "gone.parquet")[0] == 2
    assert (tmp_path / "head" / "config.json").read_bytes() == before  # where the fit failed
    assert plainly("--overwrite", "--epochs", "0")[0] == 0
    assert nb.CompatibleHead.from_pretrained(tmp_path / "head").epochs == 0


def test_what_was_fitted_on_is_told_in_what_is_embedded(fit, command, files, tmp_path):
    fit()
    for suffix in (".parquet", ".npz", ".safetensors"):
        made = tmp_path / f"made{suffix}"
        assert command("embed", tmp_path / "head", files / "new.parquet", "-o", made)[0] == 0
        assert nb.load_vectors(made).columns["fitted"].tolist() == (LABELS < 12).tolist()


def test_what_was_fitted_on_is_told_beside_bare_vectors(command, files, tmp_path):
    for side in ("old", "new"):
        vectors = nb.load_vectors(files / f"{side}.parquet").vectors.numpy()
        np.save(tmp_path / f"{side}.npy", vectors[:100])
        np.save(tmp_path / f"all {side}.npy", vectors)
    given = ["--old", tmp_path / "old.npy", "--new", tmp_path / "new.npy"]
    assert command("fit", *given, "-o", tmp_path / "head", *QUICK)[0] == 0
    made = tmp_path / "made.npy"
    assert command("embed", tmp_path / "head", tmp_path / "all new.npy", "-o", made)[0] == 0
    assert nb.load_vectors(made).columns["fitted"].tolist() == [True] * 100 + [False] * 140


def test_items_without_a_partner_are_told(fit, files, tmp_path):
    new = nb.load_vectors(files / "new.parquet")
    new.select(np.arange(24, 240)).save(tmp_path / "few.parquet")
    note = (
        "12 of 120 items of the old file are not in the new one and are not used (first: 0, 1, 2)"
    )
    code, out, _ = fit("--new", tmp_path / "few.parquet")
    assert code == 0
    assert f"Note: {note}." in out
    found = json.loads(fit("--new", tmp_path / "few.parquet", "--json")[1])
    assert found["notes"] == [note]
    assert nb.CompatibleHead.from_pretrained(tmp_path / "head").notes_ == (note,)


def test_bare_vectors_must_be_as_many(fit, tmp_path):
    for side, rows in (("old", 50), ("new", 40)):
        np.save(tmp_path / f"{side}.npy", np.random.default_rng(0).normal(size=(rows, 6)))
    code, out, err = fit("--old", tmp_path / "old.npy", "--new", tmp_path / "new.npy")
    assert (code, out) == (2, "")
    assert "50 old and 40 new rows" in " ".join(err.split())
    assert not (tmp_path / "head").exists()


def test_both_models_ask(fit, files, command, tmp_path):
    """A head that weighs the old vector of a query is fitted, applied and evaluated."""
    code, out, _ = fit("--with-old-query")
    assert code == 0
    assert "Both models embed queries: " in out
    assert "NEW --old OLD" in out
    both = tmp_path / "both.parquet"
    embed = ("embed", tmp_path / "head", files / "new.parquet", "-o", both)
    code, _, err = command(*embed)
    assert (code, "--old OLD" in err) == (2, True)
    assert command(*embed, "--old", files / "old.parquet")[0] == 0
    head = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    old, new = (nb.load_vectors(files / f"{side}.parquet") for side in ("old", "new"))
    assert nb.load_vectors(both).vectors.equal(head.transform(new, old=old).vectors)
    code, out, _ = command(
        "evaluate", "--old", files / "old.parquet", "--new", both, "--json", "--device", "cpu"
    )
    found = json.loads(out)["metrics"]
    assert found["new_old"]["map"] > found["old_old"]["map"]

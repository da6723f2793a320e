"""The readings of the paper are options of a run: from a recipe, from --set, and from Python."""

from pathlib import Path

import pytest
import torch

import nobackfill as nb
from nobackfill.data.registry import make_collection
from nobackfill.head.examples import Examples
from nobackfill.head.fitting import make_method
from nobackfill.head.schedule import FitConfig
from nobackfill.models.embed import embed
from nobackfill.training.new_prototypes import RunningMeans
from nobackfill.training.run import Run

RECIPES = Path(__file__).parents[2] / "recipes" / "glyphs"
CPU = torch.device("cpu")
TINY = [
    "data.train_classes=20", "data.test_classes=5", "data.images_per_class=6", "data.side=16",
    "model.width=4", "model.embedding_dim=8", "train.epochs=1", "train.batch_size=16",
    "method.temperature=0.1",
]  # fmt: skip
READINGS = [
    ("ndpp", {}),
    ("ndpp", {"normalize": False}),
    ("ndpp", {"normalize": False, "unit_items": False}),
    ("ndpp", {"unit_items": False}),
    ("ndpp", {"seek_from": "moved", "old_strength": 0.5}),
    ("ndpp", {"clamp_weights": False}),
    ("ndpp_old", {"clamp_weights": False, "normalize": False}),
    ("odpp", {"normalize": False, "old_threshold": 0.2}),
    ("odpp", {"unit_items": False}),
    ("odpp", {"accumulate": False}),
    ("odpp", {"pairs": "sampled", "optimizer": "sgd", "steps": 3, "learning_rate": 0.1}),
]


@pytest.fixture(scope="module")
def old_run(tmp_path_factory):
    from nobackfill.training.jobs import plan_jobs
    from nobackfill.training.pipeline import train_run

    folder = tmp_path_factory.mktemp("runs") / "old"
    tiny = [change for change in TINY if not change.startswith("method")]
    (job,) = plan_jobs(RECIPES / "old.toml", folder, tiny)
    list(train_run(job.recipe, folder, device=CPU))
    return folder


def means_by_hand(vectors, labels, *, unit_items=True, normalize=True):
    """The mean of each class, one item at a time, in float64."""
    means = torch.zeros(int(labels.max()) + 1, vectors.shape[1], dtype=torch.float64)
    for vector, label in zip(vectors.double(), labels.tolist(), strict=True):
        length = vector.norm() if unit_items else 1.0
        means[label] += vector / length / int((labels == label).sum())
    return means / means.norm(dim=1, keepdim=True) if normalize else means


@pytest.mark.parametrize(("name", "options"), READINGS)
def test_a_run_with_an_option_is_python_with_that_option(command, tmp_path, old_run, name, options):
    """One epoch: the new prototypes are those of the first weights, before any batch."""
    changes = [f"method.{key}={str(value).lower()}" for key, value in options.items()]
    sets = [
        part for change in [*TINY, *changes, f"old.run={old_run}"] for part in ("--set", change)
    ]
    code, _, err = command("train", RECIPES / f"{name}.toml", "-o", tmp_path / "run", *sets)
    assert code == 0, err

    run, old = Run.open(tmp_path / "run"), Run.open(old_run)
    collection = make_collection(run.recipe.data)
    rows = collection.training_rows(-1)
    labels = collection.labels[rows]
    averaging = {key: options[key] for key in ("unit_items", "normalize") if key in options}
    p = means_by_hand(old.embed(collection, rows, device=CPU), labels, **averaging)
    first = run.make_model(seed=run.lineage().weights_seed).eval()
    q = means_by_hand(embed(first, collection, rows), labels, **averaging)

    perturbation = {key: value for key, value in options.items() if key != "unit_items"}
    kind = nb.NeighborPerturbation if name.startswith("ndpp") else nb.OptimizedPerturbation
    if options.get("pairs") == "sampled":
        perturbation["pairs_per_epoch"] = len(rows)
    by_hand = kind(p, **perturbation)
    if not name.endswith("old"):
        by_hand.update(q)
    torch.testing.assert_close(run.moved_prototypes().double(), by_hand.moved, atol=2e-4, rtol=0)
    if options.get("normalize") is False:
        assert (by_hand.old.norm(dim=1) < 0.999).any() or not options.get("unit_items", True)


@pytest.mark.parametrize("unit_items", [True, False])
@pytest.mark.parametrize("normalize", [True, False])
def test_running_means_follow_the_reading(unit_items, normalize):
    generator = torch.Generator().manual_seed(0)
    new = torch.randn(20, 3, generator=generator)
    labels = torch.arange(20) % 4
    running = RunningMeans(4, 3, unit_items=unit_items, normalize=normalize)
    for _ in range(2):  # the second epoch forgets the first
        for part in range(0, 20, 5):
            running.add(new[part : part + 5], labels[part : part + 5])
        taken = running.take()
    expected = means_by_hand(new, labels, unit_items=unit_items, normalize=normalize)
    torch.testing.assert_close(taken.double(), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("averaging", [{}, {"normalize": False}, {"unit_items": False}])
def test_a_head_takes_the_means_of_its_method_options(averaging):
    generator = torch.Generator().manual_seed(0)
    old, labels = torch.randn(20, 3, generator=generator), torch.arange(20) % 4
    examples = Examples(torch.randn(20, 3, generator=generator), old, labels)
    method = make_method(examples, FitConfig(method="ndpp", options=averaging))
    expected = means_by_hand(old, labels, **averaging)
    torch.testing.assert_close(method.old.double(), expected, atol=1e-6, rtol=0)
    assert {**{"unit_items": True, "normalize": True}, **averaging} == dict(method.averaging)

"""Class means of several models, and a map of some classes: of the training set, as in the paper.

Class means of the training set are computed once and stored in the folder of the new run, in
`training_means.safetensors`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from nobackfill.core.atomic_files import replacing
from nobackfill.data.collection import Collection
from nobackfill.evaluation.geometry import cosine_spread
from nobackfill.evaluation.tsne import on_a_plane
from nobackfill.methods.prototypes import class_means
from nobackfill.ops.nearest import nearest
from nobackfill.training.embed import vectors_path
from nobackfill.training.run import Run
from nobackfill.vectors import Vectors, load_vectors

Place = Literal["training", "searched"]
FILE = "training_means.safetensors"
DRAWN_CLASSES, DRAWN_ITEMS = 8, 20  # on the map


@dataclass(frozen=True, eq=False)
class ClassMap:
    """Items of some classes by several models, laid out together."""

    kind: str  # "tsne" or "pca"
    names: Sequence[str]  # names of the classes
    classes: NDArray[Any]  # class of each item, as an index of `names`
    # by model: `points` of the items, `prototypes` and, if the method moved them, `moved`
    panels: Mapping[str, Mapping[str, NDArray[Any]]]


@dataclass(frozen=True, eq=False)
class ClassSpaces:
    """Class means of several models on the same classes.

    Attributes:
        place: Classes of the "training" set or the "searched" ones.
        means: Class means by model; "old" is the old model.
        spread: Standard deviation of their cosines, as they are and centred, by model.
        map: Items of some classes, if they can be embedded.
    """

    place: Place
    means: Mapping[str, Float[Tensor, "_ _"]]
    spread: Mapping[str, tuple[float, float]]
    map: ClassMap | None = None


def class_spaces(
    runs: Mapping[str, Run],
    collection: Collection | None,
    *,
    device: torch.device,
    watch: Callable[[str], None],
) -> ClassSpaces | None:
    """The class means of some runs, which have one old model and one training set.

    Args:
        runs: Runs by the names in tables.
        collection: Training set; None for the classes of the searched items.
        device: Device that embeds.
        watch: Receives the name of each step.
    """
    first = next(iter(runs.values()))
    old = Run.open(Path(str(first.recipe.old.run)))
    if collection is None:
        means = searched_means({"old": old, **runs}, first)
        return None if len(means) < 2 else _spaces("searched", means)
    models = {}
    for name, run in runs.items():
        if not (run.folder / FILE).exists():
            watch(f"report: embedding the training set by {name}")
        models[name] = training_means(run, collection, device=device)
    means = {"old": models[next(iter(runs))]["old"]}
    means |= {name: pair["new"] for name, pair in models.items()}
    comparable = {
        name: run
        for name, run in {"old": old, **runs}.items()
        if means[name].shape[1] == means["old"].shape[1] and not run.maps_queries
    }
    drawn = draw_classes(comparable, means, first, collection, device=device)
    return _spaces("training", means, drawn)


def training_means(run: Run, collection: Collection, *, device: torch.device) -> dict[str, Tensor]:
    """Class means of a run's training images, by its "old" model and by the "new" one."""
    path = run.folder / FILE
    if path.exists():
        return load_file(path)
    rows = collection.training_rows(run.recipe.train.step)
    labels = collection.labels[rows]
    models = {"old": Run.open(Path(str(run.recipe.old.run))), "new": run}
    means = {
        name: class_means(
            model.embed(collection, rows, device=device), labels, int(labels.max()) + 1
        ).cpu()
        for name, model in models.items()
    }
    with replacing(path) as temporary:
        save_file(means, temporary)
    return means


def searched_means(models: Mapping[str, Run], first: Run) -> dict[str, Tensor]:
    """Class means of the items of the first test that a run searches, by model; {} without labels.

    Methods that map queries are left out: their gallery is a space of its own.
    """
    tests = ("", *first.recipe.tests)
    test = next((test for test in tests if vectors_path(first, test).exists()), None)
    if test is None:
        return {}
    files = {
        name: vectors_path(model, test) for name, model in models.items() if not model.maps_queries
    }
    means = {name: means_of(load_vectors(path)) for name, path in files.items() if path.exists()}
    return {name: part for name, part in means.items() if part is not None}


def means_of(vectors: Vectors) -> Tensor | None:
    """Class means of a file, in the order of its labels; None without labels."""
    if vectors.labels is None:
        return None
    classes, place = np.unique(vectors.labels, return_inverse=True)
    return class_means(vectors.vectors.float(), torch.from_numpy(place), len(classes))


def draw_classes(
    models: Mapping[str, Run],
    means: Mapping[str, Float[Tensor, "_ _"]],
    first: Run,
    collection: Collection,
    *,
    device: torch.device,
) -> ClassMap:
    """Lays out training items of the classes most alike in the old space, by several models.

    All models are laid out together: their spaces are meant to be one.
    """
    # Choose classes, and their first items.
    chosen = alike_classes(means["old"], DRAWN_CLASSES)
    rows = collection.training_rows(first.recipe.train.step)
    labels = collection.labels[rows]
    picked = [(labels == number).nonzero().flatten()[:DRAWN_ITEMS] for number in chosen.tolist()]
    classes = torch.repeat_interleave(torch.tensor([len(part) for part in picked]))
    rows = rows[torch.cat(picked)]

    # Embed them by each model, with its class means and its moved prototypes.
    parts: dict[tuple[str, str], Tensor] = {}
    for name, model in models.items():
        embedded = model.embed(collection, rows, device=device).cpu()
        parts[name, "points"] = F.normalize(embedded, dim=1)
        parts[name, "prototypes"] = means[name][chosen]
        moved = None if name == "old" else model.moved_prototypes()
        if moved is not None:
            parts[name, "moved"] = F.normalize(moved[chosen].float(), dim=1)
    keys = {f"{name}/{part}": (name, part) for name, part in parts}
    kind, points = on_a_plane({key: parts[pair].float() for key, pair in keys.items()})
    panels: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in models}
    for key, (name, part) in keys.items():
        panels[name][part] = np.asarray(points[key])
    return ClassMap(kind, [str(n) for n in chosen.tolist()], classes.numpy(), panels)


def alike_classes(means: Float[Tensor, "classes dim"], number: int) -> Int[Tensor, " chosen"]:
    """Classes of the pairs with the highest cosines, ascending.

    Example:
        >>> alike_classes(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.9, 0.1], [-1.0, 0.2]]), 2)
        tensor([0, 2])
    """
    place, cosine = nearest(means, means, 1, exclude_self=True)
    chosen: list[int] = []
    for row in cosine.flatten().argsort(descending=True, stable=True).tolist():
        for member in (row, int(place[row])):
            if member not in chosen and len(chosen) < number:
                chosen.append(member)
    return torch.tensor(sorted(chosen))


def _spaces(
    place: Place, means: Mapping[str, Float[Tensor, "_ _"]], drawn: ClassMap | None = None
) -> ClassSpaces:
    """Adds the spread of each model's class means."""
    spread = {
        name: (cosine_spread(part), cosine_spread(part, center=True))
        for name, part in means.items()
    }
    return ClassSpaces(place, means, spread, drawn)

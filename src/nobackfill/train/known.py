"""Prepares exactly what a method needs of the old model, and nothing more."""

from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.embed import Watch, embed
from nobackfill.errors import ConfigError, DataError, SpaceMismatch
from nobackfill.methods import METHODS
from nobackfill.oldspace import OldSpace
from nobackfill.prototypes import class_means
from nobackfill.train.run import Run
from nobackfill.vectors import load_vectors


def know_old_space(
    recipe: Recipe, collection: Collection, *, device: torch.device, watch: Watch = iter
) -> OldSpace:
    """What a recipe's method may know of its old model: of a run, or of a file of vectors.

    Of a run, the old model embeds the new training set, as for a test; of a file, the vectors are
    matched by id and the old classifier stays unknown.
    """
    name = recipe.method.name
    needs = METHODS[name].needs
    if not needs:
        return OldSpace()
    if recipe.old.run is None and recipe.old.vectors is None:
        raise ConfigError(
            f"`{name}` needs {', '.join(sorted(needs))} of an old model, but none is named. "
            f"Add [old] with `run` (a run folder) or `vectors` (a file of old vectors), or pass "
            f"--set old.run=FOLDER."
        )
    rows = collection.training_rows(recipe.train.step)
    parts: dict[str, Tensor] = {}
    if {"prototypes", "embeddings"} & needs:
        embeddings = _old_embeddings(recipe, collection, rows, device, watch)
        _check_dimension(recipe, embeddings.shape[1])
        labels = collection.labels[rows].to(embeddings.device)
        parts["embeddings"] = embeddings
        parts["prototypes"] = class_means(embeddings, labels, int(labels.max()) + 1)
    if "classifier" in needs and recipe.old.run is not None:
        parts["classifier"] = Run.open(Path(recipe.old.run)).classifier()
    return OldSpace(**{need: part for need, part in parts.items() if need in needs})


def _old_embeddings(
    recipe: Recipe,
    collection: Collection,
    rows: Int[Tensor, " items"],
    device: torch.device,
    watch: Watch,
) -> Float[Tensor, "items dim"]:
    """The old embedding of every training item, in their order."""
    if recipe.old.run is not None:
        old = Run.open(Path(recipe.old.run))
        return embed(old.model(device), collection, rows, watch=watch)
    vectors = load_vectors(str(recipe.old.vectors))
    row_of = {item: row for row, item in enumerate(vectors.ids.tolist())}
    wanted = [collection.ids[row] for row in rows.tolist()]
    if missing := [item for item in wanted if item not in row_of]:
        raise DataError(
            f"wanted old vectors of all {len(wanted)} training items, but {recipe.old.vectors} "
            f"lacks {len(missing)}, the first being {missing[0]!r}. Embed them with the old model, "
            f"or take them out of the training set."
        )
    return vectors.vectors[[row_of[item] for item in wanted]].float().to(device)


def _check_dimension(recipe: Recipe, old_dim: int) -> None:
    """Raises where the new model could not meet the old gallery."""
    dim = recipe.model.options["embedding_dim"]
    if dim != old_dim:
        raise SpaceMismatch(
            f"wanted a new model with the {old_dim} dimensions of the old vectors, but [model] has "
            f"embedding_dim = {dim}. Set it to {old_dim}."
        )

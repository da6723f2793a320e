"""Prepares exactly what a method needs of the old model, and nothing more."""

from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.data.collections import make_collection
from nobackfill.embed import Watch, embed
from nobackfill.errors import ConfigError, DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods import METHODS
from nobackfill.oldspace import MEANING, OldSpace
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
    _check_dimension(recipe)
    if not needs:
        return OldSpace()
    if recipe.old.run is None and recipe.old.vectors is None:
        raise ConfigError(
            f"`{name}` needs {', '.join(sorted(needs))} of an old model, but none is named. "
            f"Add [old] with `run` (a run folder) or `vectors` (a file of old vectors), or pass "
            f"--set old.run=FOLDER."
        )
    if "classifier" in needs and recipe.old.run is None:
        raise OldSpaceError(
            f"`{name}` needs {MEANING['classifier']}, but a file of old vectors gives only "
            f"prototypes and embeddings. Name the old run by `old.run`, or choose a method that "
            f"needs no classifier (`nobackfill methods --given prototypes --given embeddings`)."
        )
    rows = collection.training_rows(recipe.train.step)
    parts: dict[str, Any] = {}
    if {"prototypes", "embeddings"} & needs:
        embeddings = _old_embeddings(recipe, collection, rows, device, watch)
        labels = collection.labels[rows].to(embeddings.device)
        parts["embeddings"] = embeddings
        parts["prototypes"] = class_means(embeddings, labels, int(labels.max()) + 1)
    if "classifier" in needs:
        old = Run.open(Path(str(recipe.old.run)))
        _check_numbering(old, recipe, collection)
        parts["classifier"] = old.classifier()
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


def known_dimension(recipe: Recipe) -> int | None:
    """The dimension of the old vectors, where the recipe names an old model."""
    if recipe.old.run is not None:
        return int(Run.open(Path(recipe.old.run)).recipe.model.options["embedding_dim"])
    return None if recipe.old.vectors is None else load_vectors(recipe.old.vectors).dim


def _check_dimension(recipe: Recipe) -> None:
    """Raises, before any training, where the new model could not meet the old gallery."""
    dim, old_dim = recipe.model.options["embedding_dim"], known_dimension(recipe)
    may_be_longer = "dim" in recipe.method.options  # its first dimensions then meet the gallery
    if old_dim is None or dim == old_dim or (may_be_longer and dim > old_dim):
        return
    raise SpaceMismatch(
        f"wanted a new model with the {old_dim} dimensions of the old vectors, but [model] has "
        f"embedding_dim = {dim}. Set it to {old_dim}."
    )


def _check_numbering(old: Run, recipe: Recipe, collection: Collection) -> None:
    """Raises where a label means another class to the old classifier than to the new model."""
    if old.recipe.data == recipe.data:
        return
    theirs = make_collection(old.recipe.data)
    label_of = dict(zip(collection.ids, collection.labels.tolist(), strict=True))
    for row in theirs.training_rows(old.recipe.train.step).tolist():
        item, label = theirs.ids[row], int(theirs.labels[row])
        if label_of.get(item) != label:
            raise ConfigError(
                f"wanted classes numbered as when the old classifier was trained, but {item!r} was "
                f"of class {label} and now is of class {label_of.get(item)}. Use the [data] of "
                f"{old.folder}/config.toml, in which only later `shares` may differ."
            )

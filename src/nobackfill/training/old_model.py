"""Prepares the parts of the old model that a method needs, and checks the recipe for them."""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core.config import OldConfig, Recipe
from nobackfill.data.collection import Collection
from nobackfill.data.registry import DATASETS, make_collection
from nobackfill.errors import ConfigError, DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import MEANING, OldSpace
from nobackfill.methods.prototypes import averaging, class_means
from nobackfill.models.embed import Watch
from nobackfill.training.run import Lineage, Run
from nobackfill.vectors import load_vectors


def prepare_old_space(
    recipe: Recipe, collection: Collection, *, device: torch.device, watch: Watch = iter
) -> OldSpace:
    """Returns the parts of the old model that a recipe's method needs.

    If the recipe names an old run, the old model embeds the new training set without augmentation.
    If it names a file of vectors, they are matched by id and the classifier is missing.
    """
    # Check the recipe and the numbering of classes.
    name = recipe.method.name
    needs = METHODS[name].needs
    check_old_model(recipe)
    if METHODS[name].same_kind and recipe.old.run is not None:
        _count_old_classes(recipe, collection)  # raises if the classes are numbered differently
    if not needs:
        return OldSpace()

    # List the items of the method and their classes.
    source = Path(str(recipe.old.run or recipe.old.vectors))
    rows = collection.training_rows(recipe.train.step)
    modalities = method_modalities(recipe)
    labels = collection.labels[torch.cat([collection.rows_of(rows, name) for name in modalities])]

    # Compute only the parts that the method needs.
    parts: dict[str, Any] = {}
    if {"prototypes", "embeddings"} & needs:
        embeddings = _old_embeddings(recipe, collection, rows, device, watch)
        parts["embeddings"] = embeddings
        if "prototypes" in needs:
            parts["prototypes"] = class_means(
                embeddings, labels, int(labels.max()) + 1, **averaging(recipe.method.options)
            )
    if "independent" in needs:
        independent = Path(str(recipe.old.independent))
        parts["independent"] = _embeddings(independent, collection, rows, modalities, device, watch)
    if "classifier" in needs:
        parts["classifier"] = Run.open(source).classifier()
    return OldSpace(
        **{need: part for need, part in parts.items() if need in needs},
        labels=labels,
        known_classes=_count_old_classes(recipe, collection)
        if METHODS[name].old_classes_only
        else None,
    )


def make_lineage(recipe: Recipe, collection: Collection) -> Lineage:
    """Collects the facts about a run and its old model that later runs need."""
    seed, fits = initial_seed(recipe, parent_seed(recipe.old)), fits_old(recipe)
    if recipe.old.run is not None:
        old = Run.open(Path(recipe.old.run))
        dim = old.dim
        space = old.space(collection.seen_as(old.recipe.images), None, dim=dim)
        return Lineage(dim, space.fingerprint if fits else None, seed)
    if recipe.old.vectors is None:
        return Lineage(weights_seed=seed)
    vectors = load_vectors(recipe.old.vectors)
    space_of_file = vectors.space if fits else None
    return Lineage(vectors.dim, space_of_file.fingerprint if space_of_file else None, seed)


def initial_seed(recipe: Recipe, parent: int | str | None) -> int:
    """Returns the random seed of a model's initial weights.

    By default it is a digest of `seed`, `step`, the seed of the old model and whether the method
    uses the old model. So an old, an independent and a new model start from different weights, but
    new models by different methods from the same.

    Args:
        recipe: Recipe of the model.
        parent: Seed that `parent_seed` returns for its old model.

    Example:
        >>> initial_seed(Recipe(), None), initial_seed(Recipe(), 5)
        (3366006694, 1333147392)
    """
    config = recipe.train
    if config.weights_seed is not None:
        return config.weights_seed
    identity = json.dumps([config.seed, config.step, parent, fits_old(recipe)])
    return int.from_bytes(sha256(identity.encode()).digest()[:4], "big")


def fits_old(recipe: Recipe) -> bool:
    """Whether the method trains the new model to fit the old one."""
    method = METHODS[recipe.method.name]
    return bool(method.needs) or method.same_kind


def parent_seed(old: OldConfig) -> int | str | None:
    """Returns the seed of the old model's initial weights; "vectors" if only a file is known."""
    if old.run is None:
        return None if old.vectors is None else "vectors"
    run = Run.open(Path(old.run))
    seed = run.lineage().weights_seed
    return run.recipe.train.seed if seed is None else seed


def load_old_model(recipe: Recipe, device: torch.device) -> nn.Module | None:
    """Loads the old model if it must embed each augmented image (`old_view = "same"`)."""
    if recipe.train.old_view == "test":
        return None
    old = Run.open(Path(str(recipe.old.run)))
    if old.recipe.images != recipe.images and recipe.data.name in DATASETS:
        raise ConfigError(
            f'`old_view = "same"` requires the [images] of the old model, but those of '
            f'{old.folder} differ. Leave `old_view` at "test", or copy its [images].'
        )
    return old.encoder(device)


def check_old_model(recipe: Recipe) -> None:
    """Raises before any training if the recipe lacks what its method needs of the old model."""
    name, old, method = recipe.method.name, recipe.old, METHODS[recipe.method.name]
    alternatives = "(`nobackfill methods --given prototypes --given embeddings`)"

    # An old model is named if the method needs one.
    if method.needs and old.run is None and old.vectors is None:
        raise ConfigError(
            f"`{name}` needs {', '.join(sorted(method.needs))} of an old model, but the recipe "
            f"names none. Add [old] with `run` (a run folder) or `vectors` (a file of old "
            f"vectors), or pass --set old.run=FOLDER."
        )
    old_run = None if old.run is None else Run.open(Path(old.run))

    # The old classifier exists if the method needs it.
    if "classifier" in method.needs and old_run is None:
        raise OldSpaceError(
            f"`{name}` needs {MEANING['classifier']}, but a file of old vectors provides only "
            f"prototypes and embeddings. Set `old.run` to the old run, or choose a method that "
            f"needs no classifier {alternatives}."
        )
    if "classifier" in method.needs and old_run is not None and not old_run.has_classifier:
        raise OldSpaceError(
            f"`{name}` needs {MEANING['classifier']}, but the old model in {old.run} was trained "
            f"on images and texts without one. Train it with `classification = true` in [pairs], "
            f"or choose a method that needs none {alternatives}."
        )

    # The independent model is named if the method needs it, and exists if it is named.
    if "independent" in method.needs and old.independent is None:
        raise OldSpaceError(
            f"`{name}` needs {MEANING['independent']}, but the recipe names none. Train one with "
            f"the method `independent` and set `old.independent` to its run, or choose a method "
            f"that needs none {alternatives}."
        )
    if old.independent is not None and not Path(old.independent).exists():
        raise ConfigError(
            f"`independent` in [old] names {old.independent}, which does not exist. Train it "
            f"first, or correct the path."
        )

    # The number of old classes is set only for files of vectors.
    if old_run is not None and old.known_classes is not None:
        raise ConfigError(
            "`known_classes` in [old] applies only to `vectors`: a run contains its number of "
            "classes. Remove it."
        )

    # Old and new model have the same method if the method requires that.
    old_method = name if old_run is None else old_run.recipe.method.name
    if method.same_kind and old_method != name:
        raise ConfigError(
            f"`{name}` requires an old model trained with `{name}`, but {old.run} was trained with "
            f"`{old_method}`. Train an old model with `{name}`, or choose another method."
        )
    _check_view(recipe)
    _check_dimension(recipe)


def _check_view(recipe: Recipe) -> None:
    """Raises if `old_view = "same"` is set and the old model cannot or need not embed the views."""
    if recipe.train.old_view != "same":
        return
    if recipe.text is not None:
        raise ConfigError('`old_view = "same"` in [train] does not work with [text]. Remove it.')
    method = METHODS[recipe.method.name]
    compares = "embeddings" in method.needs and method.compares_items
    if not (compares and recipe.old.run is not None):
        raise ConfigError(
            '`old_view = "same"` requires an old run and a method that compares single old '
            "vectors, but "
            + ("the recipe names no old run" if compares else f"`{recipe.method.name}` does not")
            + '. Leave `old_view` at "test".'
        )


def _check_dimension(recipe: Recipe) -> None:
    """Raises if the new dimension does not allow a search of the old gallery."""
    if recipe.old.run is not None:
        old_dim = Run.open(Path(recipe.old.run)).dim
    elif recipe.old.vectors is not None:
        old_dim = load_vectors(recipe.old.vectors).dim
    else:
        return
    dim = recipe.model.options["embedding_dim"]
    allowed = METHODS[recipe.method.name].dimension
    if dim == old_dim or allowed == "any" or (allowed == "longer" and dim > old_dim):
        return

    # Name the methods that would work.
    kinds = ("longer", "any") if dim > old_dim else ("any",)
    others = ", ".join(name for name, method in METHODS.items() if method.dimension in kinds)
    raise SpaceMismatch(
        f"`{recipe.method.name}` cannot compare the new vectors (embedding_dim = {dim} in [model]) "
        f"with the old ones: it requires {old_dim} dimensions"
        f"{' or more' if allowed == 'longer' else ''}. Set embedding_dim to {old_dim}, or choose a "
        f"method that can: {others}."
    )


def _old_embeddings(
    recipe: Recipe,
    collection: Collection,
    rows: Int[Tensor, " images"],
    device: torch.device,
    watch: Watch,
) -> Float[Tensor, "items dim"]:
    """Returns the old vector that each item is compared with; see `PairsConfig.towards`."""
    source = Path(str(recipe.old.run or recipe.old.vectors))
    embeddings: list[Tensor] = []
    for modality in method_modalities(recipe):
        target = old_modality(modality, recipe.pairs.towards)
        old = _embeddings(source, collection, rows, (target,), device, watch)
        if target != modality:
            images = collection.captions_of(rows).images.to(device)
            old = old[images] if modality == "text" else class_means(old, images, len(rows))
        embeddings.append(old)
    return torch.cat(embeddings)


def method_modalities(recipe: Recipe) -> tuple[str, ...]:
    """Returns the modalities whose new embeddings the method gets."""
    return ("image",) if recipe.text is None else recipe.pairs.modalities


def old_modality(modality: str, towards: str) -> str:
    """Returns the modality of the old vectors that a modality's new embeddings are compared with.

    Example:
        >>> [old_modality("text", towards) for towards in ("own", "image", "other")]
        ['text', 'image', 'image']
    """
    other = "text" if modality == "image" else "image"
    return {"own": modality, "image": "image", "other": other}[towards]


def _embeddings(
    source: Path,
    collection: Collection,
    rows: Int[Tensor, " images"],
    modalities: Sequence[str],
    device: torch.device,
    watch: Watch,
) -> Float[Tensor, "items dim"]:
    """Returns the embedding of every training item, by a run or from a file of vectors."""
    if source.is_dir():
        run = Run.open(source)
        return run.embed(collection, rows, modalities=modalities, device=device, watch=watch)
    vectors = load_vectors(source)
    row_of = {item: row for row, item in enumerate(vectors.ids.tolist())}
    items = [item for modality in modalities for item in collection.ids_of(rows, modality)]
    if missing := [item for item in items if item not in row_of]:
        raise DataError(
            f"{source} lacks the vectors of {len(missing)} of {len(items)} training items, such as "
            f"{missing[0]!r}. Embed them with the same model, or remove them from the training set."
        )
    return vectors.vectors[[row_of[item] for item in items]].float().to(device)


def _count_old_classes(recipe: Recipe, collection: Collection) -> int | None:
    """Returns the number of classes of the old model; they are the first classes of the new one."""
    if recipe.old.run is None:
        return recipe.old.known_classes
    old = Run.open(Path(recipe.old.run))
    if old.recipe.data == recipe.data:
        return collection.class_counts[old.recipe.train.step]

    # Check that each label denotes the same class for both models.
    old_data = make_collection(old.recipe.data)
    label_of = dict(zip(collection.ids, collection.labels.tolist(), strict=True))
    for row in old_data.training_rows(old.recipe.train.step).tolist():
        item, label = old_data.ids[row], int(old_data.labels[row])
        if label_of.get(item) != label:
            raise ConfigError(
                f"The classes are numbered differently for the old model: {item!r} was of class "
                f"{label} and is now of class {label_of.get(item)}. Use the [data] of "
                f"{old.folder}/config.toml; only later `shares` may differ."
            )
    return old_data.class_counts[old.recipe.train.step]

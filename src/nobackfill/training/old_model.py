"""Prepares exactly what a method needs of the old model, and nothing more."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from nobackfill.core.config import Recipe
from nobackfill.data.collection import Collection
from nobackfill.data.registry import make_collection
from nobackfill.errors import ConfigError, DataError, OldSpaceError, SpaceMismatch
from nobackfill.methods import METHODS
from nobackfill.methods.old_space import MEANING, OldSpace
from nobackfill.methods.prototypes import class_means
from nobackfill.models.embed import Watch
from nobackfill.training.run import Lineage, Run
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
    check_old(recipe)
    if METHODS[name].same_kind and recipe.old.run is not None:
        _known_classes(recipe, collection)  # raises where a label means another class
    if not needs:
        return OldSpace()
    source = Path(str(recipe.old.run or recipe.old.vectors))
    rows = collection.training_rows(recipe.train.step)
    shown = shown_to(recipe)
    labels = collection.labels[torch.cat([collection.rows_of(rows, one) for one in shown])]
    parts: dict[str, Any] = {}
    if {"prototypes", "embeddings"} & needs:
        embeddings = _old_embeddings(recipe, collection, rows, device, watch)
        parts["embeddings"] = embeddings
        if "prototypes" in needs:
            parts["prototypes"] = class_means(embeddings, labels, int(labels.max()) + 1)
    if "independent" in needs:
        independent = Path(str(recipe.old.independent))
        parts["independent"] = _embeddings(independent, collection, rows, shown, device, watch)
    if "classifier" in needs:
        parts["classifier"] = Run.open(source).classifier()
    return OldSpace(
        **{need: part for need, part in parts.items() if need in needs},
        labels=labels,
        known_classes=_known_classes(recipe, collection) if METHODS[name].known_only else None,
    )


def lineage_of(recipe: Recipe, collection: Collection) -> Lineage:
    """What a run must remember of its old model."""
    method = METHODS[recipe.method.name]
    fits = bool(method.needs) or method.same_kind
    if recipe.old.run is not None:
        old = Run.open(Path(recipe.old.run))
        dim = old.dim
        space = old.space(collection.seen_as(old.recipe.images), None, dim=dim)
        return Lineage(dim, space.fingerprint if fits else None)
    if recipe.old.vectors is None:
        return Lineage()
    vectors = load_vectors(recipe.old.vectors)
    known = fits and vectors.space is not None
    return Lineage(vectors.dim, vectors.space.fingerprint if known and vectors.space else None)


def old_model_for(recipe: Recipe, device: torch.device) -> nn.Module | None:
    """The old model, where a recipe asks for it to see each augmented image."""
    if recipe.train.old_view == "test":
        return None
    old = Run.open(Path(str(recipe.old.run)))
    if old.recipe.images != recipe.images and recipe.data.name != "glyphs":
        raise ConfigError(
            f'wanted `old_view = "same"` with an old model that sees images as the new one does, '
            f'but [images] of {old.folder} differs. Leave `old_view` at "test", or take its '
            f"[images]."
        )
    return old.encoder(device)


def check_old(recipe: Recipe) -> None:
    """Raises, before any training, where a recipe does not name what its method needs."""
    _check_named(recipe)
    _check_classifier(recipe)
    _check_independent(recipe)
    _check_known_classes(recipe)
    _check_kind(recipe)
    _check_view(recipe)
    _check_dimension(recipe)


def _old_embeddings(
    recipe: Recipe,
    collection: Collection,
    rows: Int[Tensor, " images"],
    device: torch.device,
    watch: Watch,
) -> Float[Tensor, "items dim"]:
    """The old vector that each item of the method is compared with; see `PairsConfig.towards`."""
    source = Path(str(recipe.old.run or recipe.old.vectors))
    found: list[Tensor] = []
    for modality in shown_to(recipe):
        of = old_modality(modality, recipe.pairs.towards)
        old = _embeddings(source, collection, rows, (of,), device, watch)
        if of != modality:
            images = collection.captions_of(rows).images.to(device)
            old = old[images] if modality == "text" else class_means(old, images, len(rows))
        found.append(old)
    return torch.cat(found)


def shown_to(recipe: Recipe) -> tuple[str, ...]:
    """Whose new embeddings the method of a recipe sees."""
    return ("image",) if recipe.text is None else recipe.pairs.modalities


def old_modality(modality: str, towards: str) -> str:
    """Whose old vectors the new embeddings of a modality are compared with.

    Example:
        >>> [old_modality("text", towards) for towards in ("own", "image", "other")]
        ['text', 'image', 'image']
    """
    other = {"image": "text", "text": "image"}
    return {"own": modality, "image": "image", "other": other[modality]}[towards]


def _embeddings(
    source: Path,
    collection: Collection,
    rows: Int[Tensor, " images"],
    modalities: Sequence[str],
    device: torch.device,
    watch: Watch,
) -> Float[Tensor, "items dim"]:
    """The embedding of every training item, in their order, by a run or from a file of vectors."""
    if source.is_dir():
        run = Run.open(source)
        return run.embed(collection, rows, modalities=modalities, device=device, watch=watch)
    vectors = load_vectors(source)
    row_of = {item: row for row, item in enumerate(vectors.ids.tolist())}
    wanted = [item for one in modalities for item in collection.ids_of(rows, one)]
    if missing := [item for item in wanted if item not in row_of]:
        raise DataError(
            f"wanted the vectors of all {len(wanted)} training items, but {source} lacks "
            f"{len(missing)}, the first being {missing[0]!r}. Embed them with the same model, or "
            f"take them out of the training set."
        )
    return vectors.vectors[[row_of[item] for item in wanted]].float().to(device)


def known_dimension(recipe: Recipe) -> int | None:
    """The dimension of the old vectors, where the recipe names an old model."""
    if recipe.old.run is not None:
        return Run.open(Path(recipe.old.run)).dim
    return None if recipe.old.vectors is None else load_vectors(recipe.old.vectors).dim


def _check_named(recipe: Recipe) -> None:
    """Raises where a method needs an old model and none is named."""
    name, old = recipe.method.name, recipe.old
    needs = METHODS[name].needs
    if needs and old.run is None and old.vectors is None:
        raise ConfigError(
            f"`{name}` needs {', '.join(sorted(needs))} of an old model, but none is named. "
            f"Add [old] with `run` (a run folder) or `vectors` (a file of old vectors), or pass "
            f"--set old.run=FOLDER."
        )


def _check_classifier(recipe: Recipe) -> None:
    """Raises where a method needs the old classifier and the old model comes without one."""
    name, run = recipe.method.name, recipe.old.run
    if "classifier" not in METHODS[name].needs:
        return
    if run is None:
        raise OldSpaceError(
            f"`{name}` needs {MEANING['classifier']}, but a file of old vectors gives only "
            f"prototypes and embeddings. Name the old run by `old.run`, or choose a method that "
            f"needs no classifier (`nobackfill methods --given prototypes --given embeddings`)."
        )
    if not Run.open(Path(run)).has_classifier:
        raise OldSpaceError(
            f"`{name}` needs {MEANING['classifier']}, but the old model in {run} was trained "
            f"on images and texts without one. Train it with `classification = true` in [pairs], "
            f"or choose a method that needs none (`nobackfill methods --given prototypes --given "
            f"embeddings`)."
        )


def _check_independent(recipe: Recipe) -> None:
    """Raises where a method needs an independent model and none is named, or it is not there."""
    name, independent = recipe.method.name, recipe.old.independent
    if "independent" in METHODS[name].needs and independent is None:
        raise OldSpaceError(
            f"`{name}` needs {MEANING['independent']}, but none is named. Train one by the "
            f"method `independent`, and name its run by `old.independent`, or choose a method that "
            f"needs none (`nobackfill methods --given prototypes --given embeddings`)."
        )
    if independent is not None and not Path(independent).exists():
        raise ConfigError(
            f"wanted a run folder or a file of vectors for `independent` in [old], but there is no "
            f"{independent}. Train it first, or correct the path."
        )


def _check_known_classes(recipe: Recipe) -> None:
    """Raises where a recipe tells the number of classes that a run knows by itself."""
    if recipe.old.run is not None and recipe.old.known_classes is not None:
        raise ConfigError(
            "wanted `known_classes` in [old] beside `vectors` only: a run knows its classes. "
            "Remove it."
        )


def _check_kind(recipe: Recipe) -> None:
    """Raises where a method serves only galleries of its own kind, and the old one is not."""
    name, run = recipe.method.name, recipe.old.run
    if not METHODS[name].same_kind or run is None:
        return
    theirs = Run.open(Path(run)).recipe.method.name
    if theirs != name:
        raise ConfigError(
            f"`{name}` serves the gallery of an old model that was trained by `{name}` too, "
            f"but {run} was trained by `{theirs}`. Train an old model by `{name}`, or "
            f"choose another method."
        )


def _check_view(recipe: Recipe) -> None:
    """Raises where the old model shall see augmented images, and cannot or need not."""
    if recipe.train.old_view != "same":
        return
    if recipe.text is not None:
        raise ConfigError(
            'wanted `old_view = "test"` in [train] beside [text], but got "same". Leave it out.'
        )
    method = METHODS[recipe.method.name]
    compares = "embeddings" in method.needs and method.compares_items
    if not (compares and recipe.old.run is not None):
        raise ConfigError(
            f'wanted `old_view = "same"` with an old run and a method that looks at single old '
            f"vectors, but got `{recipe.method.name}` "
            f"{'without an old run' if compares else 'which does not'}. Leave "
            f'`old_view` at "test".'
        )


def _check_dimension(recipe: Recipe) -> None:
    """Raises where the new model could not meet the old gallery."""
    dim, old_dim = recipe.model.options["embedding_dim"], known_dimension(recipe)
    allowed = METHODS[recipe.method.name].dimension
    if old_dim is None or dim == old_dim or allowed == "any":
        return
    if allowed == "longer" and dim > old_dim:
        return
    kinds = ("longer", "any") if dim > old_dim else ("any",)
    others = ", ".join(name for name, method in METHODS.items() if method.dimension in kinds)
    raise SpaceMismatch(
        f"wanted a new model with the {old_dim} dimensions of the old vectors"
        f"{' or more' if allowed == 'longer' else ''}, but [model] has embedding_dim = {dim}, "
        f"which `{recipe.method.name}` cannot compare. Set it to {old_dim}, or choose a method "
        f"that can: {others}."
    )


def _known_classes(recipe: Recipe, collection: Collection) -> int | None:
    """How many classes, the first, the old model was trained on."""
    if recipe.old.run is None:
        return recipe.old.known_classes
    old = Run.open(Path(recipe.old.run))
    theirs = collection if old.recipe.data == recipe.data else make_collection(old.recipe.data)
    _check_numbering(old, theirs, collection)
    return theirs.class_counts[old.recipe.train.step]


def _check_numbering(old: Run, theirs: Collection, collection: Collection) -> None:
    """Raises where a label means another class to the old model than to the new."""
    if theirs is collection:
        return
    label_of = dict(zip(collection.ids, collection.labels.tolist(), strict=True))
    for row in theirs.training_rows(old.recipe.train.step).tolist():
        item, label = theirs.ids[row], int(theirs.labels[row])
        if label_of.get(item) != label:
            raise ConfigError(
                f"wanted classes numbered as when the old classifier was trained, but {item!r} was "
                f"of class {label} and now is of class {label_of.get(item)}. Use the [data] of "
                f"{old.folder}/config.toml, in which only later `shares` may differ."
            )

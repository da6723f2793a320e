"""The guard against mixing spaces: whether a model's queries may search a collection."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.evaluation.summary_file import read_summary
from nobackfill.evaluation.verdict import over_directions, run_sentence
from nobackfill.gallery.provenance import fingerprint_of
from nobackfill.gallery.routing import Route
from nobackfill.gallery.stores.base import Store
from nobackfill.vectors.records import space_of
from nobackfill.vectors.space import CompatibleWith, Space, with_dim

NEVER: Final = "never measured"
TRAINED_TO_BE = "fitted or trained to be compatible, never measured"


@dataclass(frozen=True)
class Standing:
    """What is known of a model's queries on a collection.

    The verdict is that of a measurement against the old model's queries, if there is one; "itself"
    if the model made the vectors.
    """

    verdict: Literal["itself", "compatible", "not compatible", "undecided", "never measured"]
    reason: str  # how that is known
    declared: bool = False  # whether the record of the model has it (`evaluate --declare`)

    @property
    def may_search(self) -> bool:
        """Whether the model may search at all: unless its record declares that it should not."""
        return not (self.declared and self.verdict == "not compatible")

    @property
    def is_sure(self) -> bool:
        """Whether nothing remains to be measured."""
        return self.verdict in ("itself", "compatible")

    @property
    def in_words(self) -> str:
        """The verdict, and whether it was measured.

        Example:
            >>> Standing("compatible", "it was measured on them: mAP 0.5000").in_words
            'measured: compatible'
        """
        if self.verdict == "itself":
            return self.reason
        return TRAINED_TO_BE if self.verdict == NEVER else f"measured: {self.verdict}"


def check_model(store: Store, collection: str, model: Space, assumed: str | None = None) -> str:
    """Refuses a model that may not search a collection; returns why it may.

    A model that was fitted or trained to be compatible may, measured or not: before it is served,
    read its `standing_of`. A model that is declared not to be compatible is refused.

    Args:
        store: Gallery.
        collection: Name of the collection.
        model: Space of the query vectors.
        assumed: See `fingerprint_of`.
    """
    standing = standing_of(store, collection, model, assumed)
    check_standing(standing, collection)
    return standing.reason


def check_standing(standing: Standing, collection: str, *, strict: bool = False) -> None:
    """Refuses a model that is declared not to be compatible; if `strict`, also one in doubt."""
    if not standing.may_search:
        raise SpaceMismatch(
            f"This model may not search `{collection}`: it was measured, and is not compatible: "
            f"{standing.reason}. Train or fit another model against these vectors (`nobackfill "
            f"train`, `nobackfill fit`), or measure whether embedding the gallery again pays "
            f"(`nobackfill gallery plan`)."
        )
    if strict and not standing.is_sure:
        raise GalleryError(
            f"--strict requires a model that was measured to be compatible with `{collection}`, "
            f"but this one is: {standing.in_words} ({standing.reason}). Measure it (`nobackfill "
            f"evaluate --declare`), or leave out --strict."
        )


def standing_of(
    store: Store,
    collection: str,
    model: Space,
    assumed: str | None = None,
    *,
    training: Standing | None = None,
) -> Standing:
    """Returns what is known of a model on a collection; refuses a model not made for it.

    Args:
        store: Gallery.
        collection: Name of the collection.
        model: Space of the query vectors.
        assumed: See `fingerprint_of`.
        training: Result of training, on the gallery for which the model was made; see
            `measured_in_training`.
    """
    gallery = fingerprint_of(store, collection, assumed)
    model = with_dim(model, store.dim(collection))
    if model.fingerprint == gallery:
        return Standing("itself", "the model made these vectors itself")
    reasons = []
    if model.parent == gallery:
        method = model.method or "some method"
        reasons.append(f"the model was made compatible with them by {method}")

    # Declared measurements come first, then those of training.
    no, yes = (
        measured_on(measurements, gallery)
        for measurements in (model.not_compatible_with, model.compatible_with)
    )
    if no or yes:
        verdict: Literal["not compatible", "compatible"] = "not compatible" if no else "compatible"
        return Standing(verdict, "; ".join(reasons + (no or yes)), declared=True)
    if reasons and training is not None:
        return Standing(training.verdict, "; ".join([*reasons, training.reason]))
    if reasons:
        return Standing(NEVER, "; ".join(reasons))
    made_for = f", and was made compatible with {model.parent}" if model.parent else ""
    raise SpaceMismatch(
        f"This model may not search `{collection}` of {store.shown}: the vectors are of the space "
        f"{gallery}, but the model is of {model.fingerprint}{made_for}. Its scores there mean "
        f"nothing. Train or fit a model against these vectors (`nobackfill train`, `nobackfill "
        f"fit`), declare this one if it is measured to be compatible (`nobackfill evaluate "
        f"--declare`), or search a collection that it was made for."
    )


def declared_since(route: Route, dim: int) -> str | None:
    """Returns the measurements by which the model of a route is declared not to be compatible.

    None if its record declares none, does not exist any more, or is that of another model now.

    Args:
        route: Collection and model that are served, or that a rollback would serve.
        dim: Number of dimensions of the collection's vectors.
    """
    if route.model is None:
        return None
    try:
        model = with_dim(space_of(Path(route.model)), dim)
    except (DataError, OSError):
        return None
    if model.fingerprint != route.query_space:
        return None
    reasons = measured_on(model.not_compatible_with, route.space)
    return "; ".join(reasons) or None


def measured_on(measurements: Sequence[CompatibleWith], gallery: str | None) -> list[str]:
    """Returns the measurements on one gallery in words."""
    return [
        f"it was measured on them: {measured.metric} {measured.value:.4f}"
        for measured in measurements
        if measured.fingerprint == gallery
    ]


def measured_in_training(model: Path) -> Standing | None:
    """Returns the result of a run on the vectors of its old model; None if there is none."""
    path = model / "evaluation.json"
    if not path.is_file():
        return None
    summary = read_summary(path)
    if "old_old" not in summary:
        return None  # a model without an old one, measured on its own gallery
    sentence = run_sentence(summary).removesuffix(".")
    verdict = over_directions(summary)["verdict"]
    return Standing(verdict, f"it was measured when it was trained: {sentence}")

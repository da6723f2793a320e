"""The guard against mixing: may this model's queries search this collection?"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from nobackfill.errors import DataError, GalleryError, SpaceMismatch
from nobackfill.evaluation.verdict import over_directions, run_sentence
from nobackfill.gallery.provenance import fingerprint_of
from nobackfill.gallery.stores.base import Store
from nobackfill.vectors.space import Space, with_dim

NEVER: Final = "never measured"
TRAINED_TO_BE = "fitted or trained to be compatible, never measured"
DO_INSTEAD = (
    "Train or fit another model against these vectors (`nobackfill train`, `nobackfill fit`), or "
    "embed the gallery again"
)


@dataclass(frozen=True)
class Standing:
    """What is known of a model's queries on a collection.

    Attributes:
        verdict: Whether they were measured to find more there than the old model's, if at all;
            "itself" where the model made the vectors, so that there is nothing to measure.
        reason: How that is known.
        declared: Whether the record of the model says so (`nobackfill evaluate --declare`).
    """

    verdict: Literal["itself", "compatible", "not compatible", "undecided", "never measured"]
    reason: str
    declared: bool = False

    @property
    def may_ask(self) -> bool:
        """Whether the model may search at all: unless its record declares that it should not."""
        return not (self.declared and self.verdict == "not compatible")

    @property
    def is_sure(self) -> bool:
        """Whether nothing is left to be measured."""
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
    """Refuses a model that has no business on a collection; returns why it may ask.

    One that was fitted or trained to be compatible may ask, measured or not: whoever is to serve
    it should see what `standing_of` says. One whose record declares that it is not is refused.

    Args:
        store: Where it is.
        collection: Its name.
        model: The space of the model's query vectors.
        assumed: See `fingerprint_of`.
    """
    standing = standing_of(store, collection, model, assumed)
    check_standing(standing, collection)
    return standing.reason


def check_standing(standing: Standing, collection: str, *, strict: bool = False) -> None:
    """Refuses a model that was declared not to be compatible.

    Args:
        standing: What is known of it.
        collection: What it is to search.
        strict: Whether one in doubt is refused, too.
    """
    if not standing.may_ask:
        raise SpaceMismatch(
            f"wanted a model that may search `{collection}`, but this one was measured, and is not "
            f"compatible: {standing.reason}. {DO_INSTEAD}."
        )
    if strict and not standing.is_sure:
        raise GalleryError(
            f"wanted a model that was measured to be compatible with `{collection}`, but of this "
            f"one we know: {standing.in_words} ({standing.reason}). Measure it (`nobackfill "
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
    """What is known of a model on a collection; refuses one that was not made for it.

    Args:
        store: Where it is.
        collection: Its name.
        model: The space of the model's query vectors.
        assumed: See `fingerprint_of`.
        training: What training the model came to, on the gallery that it was made for; see
            `measured_in_training`.
    """
    gallery = fingerprint_of(store, collection, assumed)
    model = with_dim(model, store.dim(collection))
    if model.fingerprint == gallery:
        return Standing("itself", "the model made these vectors itself")
    reasons = []
    if model.parent == gallery:
        by = model.method or "some method"
        reasons.append(f"the model was made compatible with them by {by}")
    no, yes = (
        [
            f"it was measured on them: {one.metric} {one.value:.4f}"
            for one in told
            if one.fingerprint == gallery
        ]
        for told in (model.not_compatible_with, model.compatible_with)
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
        f"wanted a model that may search `{collection}` of {store.shown}, whose vectors are of the "
        f"space {gallery}, but this one is of {model.fingerprint}{made_for}: its scores there mean "
        f"nothing. Train or fit a model against these vectors (`nobackfill train`, `nobackfill "
        f"fit`), declare this one where it is measured to be compatible (`nobackfill evaluate "
        f"--declare`), or search a collection that it was made for."
    )


def measured_in_training(model: Path) -> Standing | None:
    """What training came to on the vectors of the old model, where a run has kept it.

    Args:
        model: A run; whatever else has no such thing.
    """
    kept = model / "evaluation.json"
    if not kept.is_file():
        return None
    try:
        summary = json.loads(kept.read_text(encoding="utf-8"))
        found = run_sentence(summary).removesuffix(".")
        verdict = over_directions(summary)["verdict"]
        return Standing(verdict, f"it was measured when it was trained: {found}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"wanted to know what was measured of {model}, but {kept} cannot be read: {error!r}. "
            f"Remove it, and measure with `nobackfill evaluate --declare`."
        ) from error

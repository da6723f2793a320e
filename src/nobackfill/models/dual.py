"""Models of images and texts: an encoder for each, and a projection of each into one space."""

from collections.abc import Mapping
from functools import partial
from typing import Any

from nobackfill.core.config import Choice, resolve_options
from nobackfill.core.seeding import seeded
from nobackfill.core.suggest import suggest
from nobackfill.errors import ConfigError
from nobackfill.models.aptm.checkpoint import load_checkpoint, load_swin
from nobackfill.models.aptm.model import Aptm
from nobackfill.models.dual_encoder import Both, DualEncoder, OneSide
from nobackfill.models.embedder import (
    BARE,
    Embedder,
    make_model,
    resolve_model,
    take_head,
)
from nobackfill.models.text.bag_of_words import TEXT_ENCODERS, TEXT_RESOLVERS

__all__ = ["Both", "DualEncoder", "OneSide", "check_both_parts", "make_dual", "resolve_text"]

APTM = "aptm"


def resolve_text(choice: Choice) -> Choice:
    """Returns the choice of a text encoder with all default options."""
    if choice.name not in TEXT_ENCODERS:
        raise ConfigError(
            f"unknown text encoder `{choice.name}` in [text]. {suggest(choice.name, TEXT_ENCODERS)}"
        )
    options = dict(choice.options)
    head = take_head(options, where="text", name=choice.name)
    options = resolve_options(TEXT_ENCODERS[choice.name], options, where="text")
    if choice.name in TEXT_RESOLVERS:
        options = TEXT_RESOLVERS[choice.name](options)
    return Choice(choice.name, head | options)


def make_dual(model: Choice, text: Choice, *, seed: int, bare: bool = False) -> DualEncoder:
    """Builds both encoders; the same seed gives the same weights.

    Args:
        model: Table [model] of a recipe.
        text: Table [text] of the recipe.
        seed: Random seed of weights that are not loaded.
        bare: Whether to load no weights, see `make_model`.
    """
    check_both_parts(model, text)
    image = make_model(model, seed=seed, bare=bare)
    options = dict(resolve_text(text).options)
    head = options.pop("head", "linear")
    if bare and text.name != "vectors":  # its path names vectors, not weights
        options |= {key: value for key, value in BARE.items() if key in options}
    make_encoder = TEXT_ENCODERS[text.name]
    if text.name == APTM:
        make_encoder = partial(make_encoder, image.backbone.feature_dim)
    with seeded(seed):
        text_model = Embedder(make_encoder(**options), image.embedding_dim, head)
        if model.name != APTM:
            return DualEncoder(image, text_model)
        return _make_aptm(image, text_model, resolve_model(model).options, bare=bare)


def check_both_parts(model: Choice, text: Choice | None) -> None:
    """Raises if only one of [model] and [text] is APTM, whose parts belong together."""
    names = (model.name, None if text is None else text.name)
    if APTM in names and set(names) != {APTM}:
        here, other = ("model", "text") if model.name == APTM else ("text", "model")
        raise ConfigError(
            f'[{here}] has `name = "{APTM}"`, whose cross-encoder needs both of its encoders. Set '
            f'`name = "{APTM}"` in [{other}] too.'
        )


def _make_aptm(image: Embedder, text: Embedder, options: Mapping[str, Any], *, bare: bool) -> Aptm:
    """Joins the two encoders of APTM, and loads the weights that the options of [model] name."""
    model = Aptm(image, text, top_factor=options["top_factor"])
    if not bare and options["swin_weights"] is not None:
        load_swin(model.swin.swin, options["swin_weights"])
    if not bare and options["weights"] is not None:
        load_checkpoint(model, options["weights"])
    return model

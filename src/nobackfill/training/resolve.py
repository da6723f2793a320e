"""Fills every default of a recipe and checks its names."""

from dataclasses import replace

from nobackfill.core.config import Choice, Recipe, resolve_options
from nobackfill.core.suggest import suggest
from nobackfill.data.registry import resolve_collection
from nobackfill.errors import ConfigError
from nobackfill.methods import METHODS
from nobackfill.models import resolve_model
from nobackfill.models.aptm.model import TEMPERATURE
from nobackfill.models.dual import check_both_parts, resolve_text


def resolve(recipe: Recipe) -> Recipe:
    """Returns the recipe with every default filled in; raises at the first error."""
    check_both_parts(recipe.model, recipe.text)
    if recipe.model.name == "aptm" and recipe.pairs.temperature != TEMPERATURE:
        raise ConfigError(
            f"`aptm` learns its temperature, from {TEMPERATURE}, so `temperature` in [pairs] has "
            f"no effect. Remove it."
        )
    model = resolve_model(recipe.model)
    name = recipe.method.name
    if name not in METHODS:
        raise ConfigError(f"unknown method `{name}`. {suggest(name, METHODS)}")

    # A method that takes the dimension of the new embedding gets it from the model.
    options = resolve_options(METHODS[name], recipe.method.options, where="method")
    if "dim" in options:
        dim = model.options["embedding_dim"]
        if options["dim"] not in (None, dim):
            raise ConfigError(
                f"[method] dim = {options['dim']} differs from [model] embedding_dim = {dim}. "
                f"Remove `dim`."
            )
        options["dim"] = dim

    return replace(
        recipe,
        data=resolve_collection(recipe.data),
        tests={
            test: resolve_collection(choice, where=f"tests.{test}")
            for test, choice in recipe.tests.items()
        },
        model=model,
        text=None if recipe.text is None else resolve_text(recipe.text),
        method=Choice(name, options),
    )

"""Backbones from anywhere: a network of the user's own, named by where Python finds it."""

import copy
import importlib
import inspect
from typing import Any, get_type_hints

from torch import nn

from nobackfill.errors import ConfigError
from nobackfill.models.arguments import read_arguments
from nobackfill.models.base import Backbone, find_feature_dim
from nobackfill.models.weights import load_weights


def module_backbone(
    *,
    target: str = "",
    arguments: tuple[str, ...] = (),
    weights: str | None = None,
    channels: int = 3,
    size: int = 224,
) -> Backbone:
    """Any `nn.Module` that gives one vector for each image.

    The module is imported, and so its code is run, whenever the model is made: also when a run
    that was trained with it is opened. Do not open the run of somebody whose code you do not trust.

    Args:
        target: "package.module:attribute", the attribute being a class or a function that makes
            the network, or the network itself. Of the last, a copy is trained.
        arguments: For the class or function, such as ["width=8", "act=gelu"]; values are JSON.
        weights: A file of its weights, see `load_weights`.
        channels: Of the images.
        size: Side of the images that are run through it to count its features.
    """
    network = _make(_find(target), read_arguments(arguments, key="arguments"), target)
    if weights:
        load_weights(network, weights)
    return Backbone(network, find_feature_dim(network, channels=channels, size=size))


def _find(target: str) -> Any:
    """Imports what a target names."""
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(
            f'wanted `target` in [model] as "package.module:attribute", but got "{target}".'
        )
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # it is there, and lacks something itself
        raise ConfigError(
            f"wanted the module `{module}` for `target` in [model], but Python finds no "
            f"`{error.name}`. Install it, or put its folder into PYTHONPATH."
        ) from None
    try:
        for name in attribute.split("."):
            found = getattr(found, name)
    except AttributeError:
        raise ConfigError(
            f"wanted `{attribute}` in the module `{module}`, but it has none. Check `target` in "
            f"[model]."
        ) from None
    return found


def _make(found: Any, arguments: dict[str, Any], target: str) -> nn.Module:
    """The network itself, or what a class or function makes of the arguments."""
    if isinstance(found, nn.Module):
        if arguments:
            raise ConfigError(
                f"wanted no `arguments` in [model], as `{target}` is a network already, but got "
                f"{', '.join(arguments)}. Remove them, or name its class."
            )
        return copy.deepcopy(found)
    if not _makes_networks(found):
        raise ConfigError(
            f"wanted a network, a class of networks, or a function that says it makes one (`-> "
            f"nn.Module`) at `{target}`, but got {type(found).__name__}. A recipe must not be able "
            f"to call just anything: correct `target` in [model], or write down what the function "
            f"returns."
        )
    try:
        inspect.signature(found).bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"wanted `arguments` in [model] that `{target}` takes, but {error}. Its signature is "
            f"{inspect.signature(found)}."
        ) from None
    network = found(**arguments)
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"wanted `{target}` to make an nn.Module, but it made {type(network).__name__}. Check "
            f"`target` in [model]."
        )
    return network


def _makes_networks(found: Any) -> bool:
    """Whether something is a class of networks, or a function that says it returns one."""
    if isinstance(found, type):
        return issubclass(found, nn.Module)
    if not inspect.isfunction(found):
        return False
    try:
        returns = get_type_hints(found).get("return")
    except NameError:  # of an annotation that only a type checker can see
        return False
    return isinstance(returns, type) and issubclass(returns, nn.Module)

"""Backbones of the user's own, named by module and attribute."""

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
    """Makes a backbone of any `nn.Module` that returns one vector per image.

    The module is imported, and so its code is run, whenever the model is made: also when a run
    that was trained with it is opened. Open runs only of people whose code you trust.

    Args:
        target: "package.module:attribute", a class or function that makes the network, or the
            network itself, of which a copy is trained.
        arguments: Arguments of the class or function, such as ["width=8", "act=gelu"]; values are
            JSON.
        weights: File of weights, see `load_weights`.
        channels: Number of channels of the images.
        size: Side of the images that are run through the network to count its features.
    """
    network = _make(_find(target), read_arguments(arguments, key="arguments"), target)
    if weights:
        load_weights(network, weights)
    return Backbone(network, find_feature_dim(network, channels=channels, size=size))


def _find(target: str) -> Any:
    """Imports the attribute that a target names."""
    module, colon, attribute = target.partition(":")
    if not (module and colon and attribute):
        raise ConfigError(
            f'`target` in [model] must be "package.module:attribute", not "{target}".'
        )
    try:
        value: Any = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise  # the module exists, but itself imports a missing one
        raise ConfigError(
            f"`target` in [model] names the module `{module}`, but Python finds no "
            f"`{error.name}`. Install it, or add its folder to PYTHONPATH."
        ) from None
    try:
        for name in attribute.split("."):
            value = getattr(value, name)
    except AttributeError:
        raise ConfigError(
            f"The module `{module}` has no `{attribute}`. Check `target` in [model]."
        ) from None
    return value


def _make(source: Any, arguments: dict[str, Any], target: str) -> nn.Module:
    """Returns a copy of a network, or the network that a class or function makes."""
    if isinstance(source, nn.Module):
        if arguments:
            raise ConfigError(
                f"[model] has `arguments` ({', '.join(arguments)}), but `{target}` is a network "
                f"already. Remove them, or name its class."
            )
        return copy.deepcopy(source)
    if not _makes_networks(source):
        raise ConfigError(
            f"`{target}` is {type(source).__name__}, not a network, a class of networks, or a "
            f"function annotated to return one (`-> nn.Module`). A recipe must not be able to call "
            f"just anything: correct `target` in [model], or annotate the function."
        )
    try:
        inspect.signature(source).bind(**arguments)
    except TypeError as error:
        raise ConfigError(
            f"`arguments` in [model] do not fit `{target}`: {error}. Its signature is "
            f"{inspect.signature(source)}."
        ) from None
    network = source(**arguments)
    if not isinstance(network, nn.Module):
        raise ConfigError(
            f"`{target}` made {type(network).__name__}, not an nn.Module. Check `target` in "
            f"[model]."
        )
    return network


def _makes_networks(source: Any) -> bool:
    """Whether a value is a class of networks, or a function annotated to return one."""
    if isinstance(source, type):
        return issubclass(source, nn.Module)
    if not inspect.isfunction(source):
        return False
    try:
        returns = get_type_hints(source).get("return")
    except NameError:  # an annotation that only a type checker sees
        return False
    return isinstance(returns, type) and issubclass(returns, nn.Module)

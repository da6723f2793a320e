"""What every backbone is from outside, and what making one from another package takes."""

import difflib
import importlib
from collections.abc import Sequence
from types import ModuleType

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.errors import ConfigError


class Backbone(nn.Module):
    """Any network that turns images into features, and how many these are."""

    def __init__(self, network: nn.Module, feature_dim: int):
        super().__init__()
        self.network, self.feature_dim = network, feature_dim

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Returns the features of each image."""
        features: Tensor = self.network(images)
        return features


def find_feature_dim(network: nn.Module, *, channels: int, size: int) -> int:
    """Runs two zero images through a network in eval mode, and counts the features of each.

    Example:
        >>> find_feature_dim(nn.Flatten(), channels=3, size=4)
        48
    """
    shape, training = (2, channels, size, size), network.training
    try:
        with torch.no_grad():
            features = network.eval()(torch.zeros(shape))
    except (RuntimeError, ValueError) as error:
        raise ConfigError(
            f"wanted a network that takes images of {channels} channels and {size} x {size} "
            f"pixels, but it stopped: {error}. Set what [model] says of them to what it takes."
        ) from error
    finally:
        network.train(training)
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        came = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(
            f"wanted one vector for each image, but of images {shape} the network made {came}. "
            f"Choose a network that pools its features, and returns only these."
        )
    return features.shape[1]


def optional_package(name: str, *, extra: str) -> ModuleType:
    """Imports a package that is not always there."""
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # torchvision beside another torch: the latter
        if isinstance(error, ModuleNotFoundError) and error.name == name:
            raise ConfigError(
                f"{name} is not installed. `pip install 'nobackfill[{extra}]'`, or choose another "
                f"backbone."
            ) from None
        raise ConfigError(
            f"{name} is installed, but cannot be imported here: {error}. Install the release that "
            f"belongs to torch {torch.__version__}, or choose another backbone."
        ) from error


def unknown_architecture(
    name: str, known: Sequence[str], *, listed_by: str, where: str = "model"
) -> ConfigError:
    """The error for a name that a package does not have, with the names nearest to it."""
    close = " or ".join(f"`{match}`" for match in difflib.get_close_matches(name, known))
    what_to_do = f"Did you mean {close}?" if close else f"{listed_by} lists what there is."
    return ConfigError(f"unknown architecture `{name}` in [{where}]. {what_to_do}")

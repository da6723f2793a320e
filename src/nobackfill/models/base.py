"""The interface of backbones, and helpers to make one from another package."""

import difflib
import importlib
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from nobackfill.errors import ConfigError, DataError
from nobackfill.models.evaluating import evaluating
from nobackfill.models.torchvision_operators import import_torchvision_here

USE_TORCHVISION = ("timm", "torchvision", "transformers")


class Backbone(nn.Module):
    """A network from images to `feature_dim` features."""

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
    shape = (2, channels, size, size)
    features = run_on_zeros(network, shape, "Correct the options in [model]")
    if not isinstance(features, Tensor) or features.ndim != 2 or len(features) != 2:
        output = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise ConfigError(
            f"The network must return one vector per image, but it returned {output} for images "
            f"{shape}. Choose a network that pools its features, and returns only these."
        )
    return features.shape[1]


def run_on_zeros(network: nn.Module, shape: tuple[int, ...], remedy: str) -> Any:
    """Returns the output of a network in eval mode for zero images.

    Raises ConfigError with a remedy if it cannot process images of this shape.
    """
    device = next((parameter.device for parameter in network.parameters()), None)
    try:
        with evaluating(network):
            return network(torch.zeros(shape, device=device))
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0].rstrip(".")
        channels, height, width = shape[-3:]
        raise ConfigError(
            f"The network cannot process images of {channels} channels and {height} x {width} "
            f"pixels: {reason}. {remedy}."
        ) from error


def check_images(network: nn.Module, shape: tuple[int, ...]) -> None:
    """Raises if a network cannot process the images of a collection, `shape` of each."""
    remedy = (
        "The images are as [images] makes them, or as the data are drawn. Set `channels` in "
        "[model], and a size in [images] that the network takes"
    )
    run_on_zeros(network, (2, *shape), remedy)


def optional_package(name: str, *, extra: str) -> ModuleType:
    """Imports an optional package."""
    if name in USE_TORCHVISION:
        import_torchvision_here()
    try:
        return importlib.import_module(name)
    except (ImportError, RuntimeError) as error:  # RuntimeError: torchvision for another torch
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
    """Returns the error for an unknown name, with the most similar names."""
    close = " or ".join(f"`{match}`" for match in difflib.get_close_matches(name, known))
    remedy = f"Did you mean {close}?" if close else f"{listed_by} lists the known ones."
    return ConfigError(f"unknown architecture `{name}` in [{where}]. {remedy}")


def check_one_source(weights: str | None, pretrained: bool) -> None:
    """Raises if weights have two sources."""
    if weights and pretrained:
        raise ConfigError(
            "[model] has both `weights` and `pretrained`, two sources of the same weights. Remove "
            "one of them."
        )


def not_fetched(package: str, architecture: str, error: Exception) -> DataError:
    """Returns the error for a package that cannot download its weights."""
    return DataError(
        f"{package} could not download its weights for `{architecture}`: {error}. Get them on a "
        f"machine with a network, and pass the file as `weights`."
    )

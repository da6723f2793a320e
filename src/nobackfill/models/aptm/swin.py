"""APTM's image encoder: timm's Swin on images that are higher than wide, with square windows."""

import warnings
from typing import Any

from jaxtyping import Float
from torch import Tensor, cat, nn

from nobackfill.errors import ConfigError
from nobackfill.models.base import Backbone, optional_package

PATCH = 4  # side of a patch in pixels


class SwinTokens(nn.Module):
    """A Swin that returns the mean of its last tokens, or the mean and the tokens.

    Args:
        swin: timm's Swin without classifier.
        size: Height and width of the images.
    """

    def __init__(self, swin: nn.Module, size: tuple[int, ...]):
        super().__init__()
        self.swin, self.size = swin, tuple(size)

    def tokens(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch tokens features"]:
        """Returns the mean of the tokens, followed by the tokens themselves."""
        if images.shape[2:] != self.size:
            raise ConfigError(
                f"The model `aptm` was made for images of {self.size[0]} x {self.size[1]} pixels, "
                f"but gets {images.shape[2]} x {images.shape[3]}. Set `size` in [model] to the "
                f"height and width of [images]."
            )
        tokens = self.swin.forward_features(images).flatten(1, 2)  # type: ignore[operator]
        return cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1)

    def forward(
        self, images: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch features"]:
        """Returns the mean of the last tokens."""
        return self.tokens(images)[:, 0]


def aptm_image(
    *,
    size: tuple[int, ...] = (384, 128),
    channels: int = 3,
    window: int = 8,
    width: int = 128,
    depths: tuple[int, ...] = (2, 2, 18, 2),
    heads: tuple[int, ...] = (4, 8, 16, 32),
    drop_path: float = 0.1,
    top_factor: float = 2.0,
    weights: str | None = None,
    swin_weights: str | None = None,
) -> Backbone:
    """Makes APTM's image encoder, by default Swin-B for images of 384 x 128.

    `weights` and `top_factor` concern the whole model; `make_dual` and the optimizer use them.

    Args:
        size: Height and width of the images.
        channels: Number of channels of the images.
        window: Side of the attention windows in tokens. Where the map is not wider than that,
            windows are as wide as the map, and are not shifted.
        width: Number of channels of the first stage; each stage doubles it.
        depths: Number of blocks of each stage.
        heads: Number of attention heads of each stage.
        drop_path: Highest share of skipped blocks (stochastic depth).
        top_factor: Factor of the learning rate of the upper layers, see `Aptm`.
        weights: Checkpoint of a whole APTM, see `load_checkpoint`.
        swin_weights: File of a Swin, to start the image encoder alone with.
    """
    _check_sizes(size, window=window, depths=depths, heads=heads, width=width)
    timm = optional_package("timm", extra="vision")
    if not hasattr(timm.models.swin_transformer.SwinTransformerBlock, "set_input_size"):
        raise ConfigError(
            f"`aptm` requires a timm whose Swin takes any image size, but {timm.__version__} does "
            f"not. Install a later release."
        )
    swin = timm.models.swin_transformer.SwinTransformer(
        img_size=size,
        patch_size=PATCH,
        in_chans=channels,
        num_classes=0,
        global_pool="",
        embed_dim=width,
        depths=depths,
        num_heads=heads,
        window_size=window,
        drop_path_rate=drop_path,
    )
    for stage in swin.layers:
        for block in stage.blocks:
            _set_window(block, window)
    return Backbone(SwinTokens(swin, size), width * 2 ** (len(depths) - 1))


def _set_window(block: Any, window: int) -> None:
    """Gives a block square windows: timm would make them higher than wide on a narrow map."""
    resolution = block.input_resolution
    if min(resolution) <= window:
        block.target_shift_size = (0, 0)
    side = min(window, *resolution)
    with warnings.catch_warnings():  # of timm's interpolation
        warnings.simplefilter("ignore")
        block.set_input_size(resolution, (side, side))


def _check_sizes(
    size: tuple[int, ...],
    *,
    window: int,
    depths: tuple[int, ...],
    heads: tuple[int, ...],
    width: int,
) -> None:
    """Raises if the options of `aptm_image` contradict each other."""
    if len(size) != 2:
        raise ConfigError(f"`size` in [model] must be height and width, not {list(size)}.")
    if len(depths) != len(heads) or not depths:
        raise ConfigError(
            f"`depths` and `heads` in [model] must have one number per stage, not {list(depths)} "
            f"and {list(heads)}."
        )
    if wrong := [count for stage, count in enumerate(heads) if width * 2**stage % count]:
        raise ConfigError(
            f"`heads` in [model] must divide the channels of their stage ({width}, doubled at each "
            f"stage), but {wrong[0]} does not. Change `heads` or `width`."
        )
    coarse = PATCH * 2 ** (len(depths) - 1)  # pixels per token of the last stage
    if window < 1 or any(side < coarse or side % coarse for side in size):
        raise ConfigError(
            f"`size` in [model] must be multiples of {coarse} for {len(depths)} stages, and "
            f"`window` at least 1, but they are {list(size)} and {window}. Change one of them."
        )

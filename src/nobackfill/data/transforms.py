"""Image preprocessing: resizing and cropping on the CPU, the rest on the device."""

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from PIL import Image
from torch import Tensor

from nobackfill.core.config import ImagesConfig
from nobackfill.data.collection import Images

RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
NORMALIZATION = {
    "imagenet": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
    "half": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "rstpreid": (  # as in the public code of APTM
        (0.27722597, 0.26065794, 0.3036557),
        (0.2609547, 0.2508087, 0.25293276),
    ),
}


def resize(image: Image.Image, config: ImagesConfig) -> UInt8[Tensor, "channels height width"]:
    """Resizes an image to the size that crops are taken from."""
    if len(config.size) == 2:
        height, width = config.size
    else:
        scale = config.size[0] / min(image.size)
        width, height = (max(round(scale * side), config.size[0]) for side in image.size)
    if config.channels == 1:
        image = image.convert("L")
    resized = image.resize((width, height), RESAMPLING[config.interpolation])
    pixels = torch.from_numpy(np.array(resized))
    return pixels[None] if config.channels == 1 else pixels.permute(2, 0, 1)


def cut(
    pixels: UInt8[Tensor, "channels height width"],
    config: ImagesConfig,
    generator: torch.Generator | None,
) -> UInt8[Tensor, "channels crop_height crop_width"]:
    """Crops an image in the centre, or with a generator at a random position."""
    if not config.crop:
        return pixels
    room = [whole - part for whole, part in zip(pixels.shape[1:], config.crop, strict=True)]
    if generator is None:
        top, left = (space // 2 for space in room)
    else:
        top, left = (int(torch.randint(space + 1, (), generator=generator)) for space in room)
    return pixels[:, top : top + config.crop[0], left : left + config.crop[1]]


def normalize(pixels: UInt8[Tensor, "batch channels height width"], config: ImagesConfig) -> Images:
    """Scales bytes to the range that the model expects."""
    mean, deviation = (
        torch.tensor(values)[:, None, None].to(pixels.device, non_blocking=True)
        for values in NORMALIZATION[config.normalize]
    )
    if config.channels == 1:
        mean, deviation = mean.mean(0, keepdim=True), deviation.mean(0, keepdim=True)
    return (pixels / 255 - mean) / deviation


def augment(images: Images, generator: torch.Generator, config: ImagesConfig) -> Images:
    """Augments images at random: mirrors, shifts and erases as `config` says."""
    if config.flip:
        mirrored = torch.rand(len(images), generator=generator) < config.flip
        mirrored = mirrored[:, None, None, None].to(images.device, non_blocking=True)
        images = torch.where(mirrored, images.flip(-1), images)
    if config.pad:
        by = torch.randint(-config.pad, config.pad + 1, (2, len(images)), generator=generator)
        by = by.to(images.device, non_blocking=True)
        black = torch.zeros(1, images.shape[1], 1, 1, dtype=torch.uint8, device=images.device)
        images = shift(images, *by, black=normalize(black, config))
    if config.erase:
        images = erase(images, config.erase, generator)
    return images


def shift(
    images: Images,
    down: Int[Tensor, " batch"],
    right: Int[Tensor, " batch"],
    *,
    black: Float[Tensor, "1 channels 1 1"],
) -> Images:
    """Moves each image by whole pixels, and fills the border with `black`.

    Example:
        >>> image = torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]])
        >>> black = torch.zeros(1, 1, 1, 1)
        >>> shift(image, torch.tensor([1]), torch.tensor([0]), black=black).tolist()
        [[[[0.0, 0.0], [1.0, 2.0]]]]
    """
    height, width = images.shape[-2:]
    row = torch.arange(height, device=images.device) - down[:, None]
    column = torch.arange(width, device=images.device) - right[:, None]
    inside = _box((row >= 0) & (row < height), (column >= 0) & (column < width))
    image = torch.arange(len(images), device=images.device)[:, None, None]
    moved = images.permute(0, 2, 3, 1)[
        image, row.clamp(0, height - 1)[:, :, None], column.clamp(0, width - 1)[:, None, :]
    ].permute(0, 3, 1, 2)
    return torch.where(inside, moved, black)


def erase(images: Images, share: float, generator: torch.Generator) -> Images:
    r"""Fills a rectangle with the mean colour (0 after normalising) in a share of the images.

    Its area is 2 to 40 % of the image, and it is 0.3 to 3.33 times as high as wide (Zhong et al.,
    2020). Sides that do not fit are cut to those of the image; the authors draw again instead.
    """
    batch, _, height, width = images.shape
    drawn = torch.rand(5, batch, generator=generator).to(images.device, non_blocking=True)
    chance, area, shape, top, left = drawn
    area = (0.02 + 0.38 * area) * height * width
    shape = torch.exp((2 * shape - 1) * torch.tensor(1 / 0.3).log().item())
    high = (area * shape).sqrt().round().clamp(1, height)
    wide = (area / shape).sqrt().round().clamp(1, width)
    top, left = (top * (height - high + 1)).floor(), (left * (width - wide + 1)).floor()
    row = torch.arange(height, device=images.device)
    column = torch.arange(width, device=images.device)
    in_rows = (row >= top[:, None]) & (row < (top + high)[:, None])
    in_columns = (column >= left[:, None]) & (column < (left + wide)[:, None])
    erased = _box(in_rows, in_columns) & (chance < share)[:, None, None, None]
    return images.masked_fill(erased, 0.0)


def _box(
    rows: Bool[Tensor, "batch height"], columns: Bool[Tensor, "batch width"]
) -> Bool[Tensor, "batch 1 height width"]:
    """Returns the pixels of each image that are in both its rows and its columns."""
    return rows[:, None, :, None] & columns[:, None, None, :]


def describe(config: ImagesConfig) -> str:
    """Describes the preprocessing without augmentation, for the fingerprint of vectors."""
    side = " x ".join(map(str, config.size))
    side = side if len(config.size) == 2 else f"short side {side}"
    middle = f", middle {config.crop[0]} x {config.crop[1]}" if config.crop else ""
    kind = "grey" if config.channels == 1 else "RGB"
    return f"{kind}, {config.interpolation} to {side}{middle}, {config.normalize}"

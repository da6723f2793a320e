"""Drawn characters: a built-in collection with any number of classes, the same on every machine."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from nobackfill.data.glyph_drawing import Purpose, draw, random_bits
from nobackfill.data.splits import number_classes
from nobackfill.errors import ConfigError

SMALLEST_SIDE = 16  # pixels; below, marks and strokes run together
LARGEST_FAMILY = 8  # members; more marks than these do not fit around every skeleton
LARGEST_VARIATION = 3.0  # beyond, characters leave the paper


@dataclass(frozen=True, eq=False)
class Glyphs:
    """A collection of drawn characters in memory, one entry per image.

    The training images of the model of step `s` are those with `labels < class_counts[s]`: test
    classes carry the labels after all training classes.

    Attributes:
        images: Ink, from 0 (paper) to 255.
        labels: Class numbers, the classes of earlier models first.
        ids: Names such as "glyph-00017-003": original class 17, its image 3.
        split: "train" or "validation".
        is_query: Validation images that ask.
        is_gallery: Validation images that are searched.
        family: The family of look-alikes that the class belongs to.
        class_counts: How many training classes each step of the upgrade knows.
    """

    images: UInt8[Tensor, "images 1 side side"]
    labels: Int64[Tensor, " images"]
    ids: list[str]
    split: list[str]
    is_query: Bool[Tensor, " images"]
    is_gallery: Bool[Tensor, " images"]
    family: Int64[Tensor, " images"]
    class_counts: tuple[int, ...]


def glyphs(
    *,
    train_classes: int = 200,
    test_classes: int = 100,
    images_per_class: int = 16,
    queries_per_class: int = 2,
    gallery_per_class: int = 6,
    family_size: int = 5,
    crowding: float | int = 0.5,
    variation: float | int = 1.0,
    side: int = 32,
    shares: Sequence[float | int] = (0.3, 1.0),
    seed: int = 0,
) -> Glyphs:
    """Draws training classes and, from families of their own, test classes.

    Args:
        train_classes: How many classes to train on.
        test_classes: How many classes to search among.
        images_per_class: Training images of each training class.
        queries_per_class: Queries of each test class.
        gallery_per_class: Gallery images of each test class.
        family_size: How many classes look alike.
        crowding: How alike, from 0 (a long mark tells siblings apart) to 1 (a dot does).
        variation: How much the images of a class differ; 0 draws them all the same.
        side: Height and width of an image in pixels.
        shares: The share of the training classes that each step of the upgrade knows.
        seed: Another seed draws other characters.

    Example:
        >>> data = glyphs(train_classes=10, test_classes=5, images_per_class=3)
        >>> data.images.shape, data.class_counts, data.ids[0]
        (torch.Size([70, 1, 32, 32]), (3, 10), 'glyph-00000-000')
    """
    _check_at_least(2, train_classes=train_classes, test_classes=test_classes)
    _check_at_least(
        1,
        images_per_class=images_per_class,
        queries_per_class=queries_per_class,
        gallery_per_class=gallery_per_class,
    )
    _check_at_least(SMALLEST_SIDE, side=side)
    _check_within(1, LARGEST_FAMILY, family_size=family_size)
    _check_within(0, 1, crowding=crowding)
    _check_within(0, LARGEST_VARIATION, variation=variation)
    _check_within(0, 2**63 - 1, seed=seed)

    order = number_classes(_shuffled(train_classes, seed), shares)
    first_test_class = -(-train_classes // family_size) * family_size  # of a family of its own
    test = torch.arange(first_test_class, first_test_class + test_classes)
    classes = torch.cat([order.classes, test])
    sizes = torch.tensor([images_per_class, queries_per_class + gallery_per_class])
    sizes = sizes.repeat_interleave(torch.tensor([train_classes, test_classes]))

    labels = torch.arange(len(classes)).repeat_interleave(sizes)
    original = classes[labels]
    number = torch.cat([torch.arange(int(size)) for size in sizes])  # of the image in its class
    is_test = labels >= train_classes
    is_query = is_test & (number < queries_per_class)
    images = draw(
        original.numpy(),
        number.numpy(),
        family_size=family_size,
        crowding=crowding,
        variation=variation,
        side=side,
        seed=seed,
    )
    return Glyphs(
        images=torch.from_numpy(images).unsqueeze(1),
        labels=labels,
        ids=[
            f"glyph-{class_id:05d}-{image:03d}"
            for class_id, image in zip(original.tolist(), number.tolist(), strict=True)
        ],
        split=["validation" if validation else "train" for validation in is_test.tolist()],
        is_query=is_query,
        is_gallery=is_test & ~is_query,
        family=original // family_size,
        class_counts=order.counts,
    )


def augment(
    images: Float[Tensor, "batch channel side side"],
    generator: torch.Generator,
    *,
    pixels: int = 2,
    paper: float = 0.0,
) -> Float[Tensor, "batch channel side side"]:
    """Shifts each image by up to so many pixels, at random; what comes in at the edge is paper.

    Args:
        images: As they are loaded.
        generator: Draws the shifts.
        pixels: How far at most, in each direction.
        paper: The value of a pixel without ink.

    Example:
        >>> augment(torch.zeros(2, 1, 16, 16), torch.Generator().manual_seed(0)).shape
        torch.Size([2, 1, 16, 16])
    """
    batch, side = images.shape[0], images.shape[-1]
    corner = torch.randint(
        2 * pixels + 1, (2, batch), generator=generator, device=generator.device
    ).to(images.device, non_blocking=True)
    crops = F.pad(images, [pixels] * 4, value=paper).unfold(2, side, 1).unfold(3, side, 1)
    return crops[torch.arange(batch, device=images.device), :, corner[0], corner[1]]


def _shuffled(num_classes: int, seed: int) -> Int64[Tensor, " classes"]:
    """A permutation of the classes: ours, since torch's may change with its version."""
    lot = random_bits(seed, Purpose.CLASS_ORDER, np.arange(num_classes))
    return torch.from_numpy(lot.argsort(kind="stable")).long()


def _check_at_least(least: int, **settings: int) -> None:
    for name, value in settings.items():
        if value < least:
            raise ConfigError(
                f"`{name}` must be at least {least}, but it is {value}. Raise it, or leave it out."
            )


def _check_within(low: float | int, high: float | int, **settings: float | int) -> None:
    for name, value in settings.items():
        if not low <= value <= high:
            raise ConfigError(
                f"`{name}` must lie between {low} and {high}, but it is {value}. "
                "Choose a value in between, or leave it out."
            )

"""The built-in collection of drawn characters, the same on every machine."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int64, UInt8
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.data.glyph_drawing import Purpose, draw, random_bits
from nobackfill.data.splits import number_classes
from nobackfill.errors import ConfigError

SMALLEST_SIDE = 16  # pixels; below, marks and strokes run together
LARGEST_FAMILY = 8  # members; more marks than these do not fit around every skeleton
LARGEST_VARIATION = 3.0  # beyond, characters leave the paper


@dataclass(frozen=True, eq=False, repr=False)
class Glyphs(Short):
    """Drawn characters in memory, one entry per image.

    The model of step `s` is trained on images with `labels < class_counts[s]`. Test classes have
    the labels after all training classes.

    Attributes:
        images: Ink, from 0 (paper) to 255.
        labels: Class numbers, the classes of earlier models first.
        ids: Names such as "glyph-00017-003": image 3 of the original class 17.
        split: "train" or "validation".
        is_query: Whether a validation image is a query.
        is_gallery: Whether a validation image is in the gallery.
        family: Family of similar classes that the class belongs to.
        class_counts: Number of training classes that each step of the upgrade knows.
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
    """Draws training classes and, from other families, test classes.

    Args:
        train_classes: Number of training classes.
        test_classes: Number of classes in queries and gallery.
        images_per_class: Number of images of each training class.
        queries_per_class: Number of queries of each test class.
        gallery_per_class: Number of gallery images of each test class.
        family_size: Number of similar classes in a family.
        crowding: Similarity in a family, from 0 (classes differ by a long mark) to 1 (by a dot).
        variation: Variation of the images of a class; 0 draws identical ones.
        side: Height and width of an image in pixels.
        shares: Share of the training classes that each step of the upgrade knows.
        seed: Random seed of the characters.

    Example:
        >>> data = glyphs(train_classes=10, test_classes=5, images_per_class=3)
        >>> data.images.shape, data.class_counts, data.ids[0]
        (torch.Size([70, 1, 32, 32]), (3, 10), 'glyph-00000-000')
    """
    check_range(2, train_classes=train_classes, test_classes=test_classes)
    check_range(1, images_per_class=images_per_class, queries_per_class=queries_per_class)
    check_range(1, gallery_per_class=gallery_per_class)
    check_range(SMALLEST_SIDE, side=side)
    check_range(1, LARGEST_FAMILY, family_size=family_size)
    check_range(0, 1, crowding=crowding)
    check_range(0, LARGEST_VARIATION, variation=variation)
    check_range(0, 2**63 - 1, seed=seed)

    # Number the training classes by step; test classes come from families of their own.
    order = number_classes(_shuffled(train_classes, seed), shares)
    first_test_class = -(-train_classes // family_size) * family_size
    test = torch.arange(first_test_class, first_test_class + test_classes)
    classes = torch.cat([order.classes, test])
    sizes = torch.tensor([images_per_class, queries_per_class + gallery_per_class])
    sizes = sizes.repeat_interleave(torch.tensor([train_classes, test_classes]))

    # Draw the images of each class.
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
    """Shifts each image at random, by at most `pixels` in each direction, and fills with `paper`.

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
    """Permutes the classes without torch, whose permutations may change with its version."""
    keys = random_bits(seed, Purpose.CLASS_ORDER, np.arange(num_classes))
    return torch.from_numpy(keys.argsort(kind="stable")).long()


def check_range(low: float | int, high: float | int = math.inf, **settings: float | int) -> None:
    """Raises if one of the settings is below `low` or above `high`."""
    limits = f"be at least {low}" if high == math.inf else f"lie between {low} and {high}"
    for name, value in settings.items():
        if not low <= value <= high:
            raise ConfigError(
                f"`{name}` must {limits}, but it is {value}. Choose another value, or leave it out."
            )

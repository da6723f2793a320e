"""Texts that belong to images: several to each, one of them drawn when a batch is made."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nobackfill.errors import DataError


@dataclass(frozen=True, eq=False)
class Captions:
    """The texts of some images, those of an image next to each other, in the order of the images.

    Attributes:
        texts: Themselves.
        ids: Of each text: that of its image and its number there, such as "photo.jpg#0".
        first: Of each image the place of its first text.
        count: Of each image how many there are.
    """

    texts: list[str]
    ids: list[str]
    first: Int64[Tensor, " images"]
    count: Int64[Tensor, " images"]

    @property
    def images(self) -> Int64[Tensor, " texts"]:
        """Of each text the place of its image."""
        places = torch.arange(len(self.count), device=self.count.device)
        return places.repeat_interleave(self.count)

    def select(self, rows: Int64[Tensor, " some"]) -> "Captions":
        """The texts of some images, in their order."""
        count = self.count[rows]
        places = [
            place
            for first, number in zip(self.first[rows].tolist(), count.tolist(), strict=True)
            for place in range(first, first + number)
        ]
        return Captions(
            texts=[self.texts[place] for place in places],
            ids=[self.ids[place] for place in places],
            first=count.cumsum(0) - count,
            count=count,
        )

    def to(self, device: torch.device | str) -> "Captions":
        """The same, to be drawn from on another device."""
        return Captions(self.texts, self.ids, self.first.to(device), self.count.to(device))

    def drawn(
        self, images: Int64[Tensor, " batch"], chance: Float[Tensor, " batch"]
    ) -> Int64[Tensor, " batch"]:
        """For each image the place of one of its texts.

        Args:
            images: Places of images.
            chance: For each a number from 0 to below 1.

        Example:
            >>> captions = collect_captions([("a", "b"), ("c",)], ["x", "y"])
            >>> captions.drawn(torch.tensor([1, 0]), torch.tensor([0.9, 0.9]))
            tensor([2, 1])
        """
        return self.first[images] + (chance * self.count[images]).long()


def collect_captions(captions: Sequence[Sequence[str]], ids: Sequence[str]) -> Captions:
    """Captions by image, as one list.

    Args:
        captions: The texts of each image.
        ids: Of the images.

    Example:
        >>> collect_captions([("a bird", "a crow"), ("a cat",)], ["x", "y"]).ids
        ['x#0', 'x#1', 'y#0']
    """
    count = torch.tensor([len(texts) for texts in captions], dtype=torch.int64)
    return Captions(
        texts=[text for texts in captions for text in texts],
        ids=[
            f"{image}#{number}"
            for image, texts in zip(ids, captions, strict=True)
            for number in range(len(texts))
        ],
        first=count.cumsum(0) - count,
        count=count,
    )


def check_captions(captions: Captions, ids: Sequence[str]) -> None:
    """Refuses images that nobody describes, and texts that say nothing.

    Args:
        captions: Of the images that are trained on, or searched.
        ids: Of these images.
    """
    if (silent := captions.count == 0).any():
        first = int(silent.nonzero()[0])
        raise DataError(
            f"wanted a text for each image, but {int(silent.sum())} of {len(ids)} have none, the "
            f"first being {ids[first]!r}. Describe them, or give them the split `unused`."
        )
    blank = [
        name for name, text in zip(captions.ids, captions.texts, strict=True) if not text.strip()
    ]
    if blank:
        raise DataError(
            f"wanted texts that say something, but {len(blank)} of {len(captions.texts)} are "
            f"empty, the first being {blank[0]!r}. Write or remove them."
        )

"""Captions of images: several for each, one of which is drawn when a batch is made."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from nobackfill.core.short import Short
from nobackfill.errors import DataError


@dataclass(frozen=True, eq=False, repr=False)
class Captions(Short):
    """The texts of images: one list in the order of the images.

    Attributes:
        texts: All texts.
        ids: Id of each text: the id of its image and its number, such as "photo.jpg#0".
        first: Position of the first text of each image.
        count: Number of texts of each image.
    """

    texts: list[str]
    ids: list[str]
    first: Int64[Tensor, " images"]
    count: Int64[Tensor, " images"]

    @property
    def images(self) -> Int64[Tensor, " texts"]:
        """Position of the image of each text."""
        places = torch.arange(len(self.count), device=self.count.device)
        return places.repeat_interleave(self.count)

    def select(self, rows: Int64[Tensor, " some"]) -> "Captions":
        """Returns the texts of a subset of the images, in the order of `rows`."""
        count = self.count[rows]
        places = [
            place
            for first, number in zip(self.first[rows].tolist(), count.tolist(), strict=True)
            for place in range(first, first + number)
        ]
        texts, ids = [self.texts[place] for place in places], [self.ids[place] for place in places]
        return Captions(texts, ids, count.cumsum(0) - count, count)

    def to(self, device: torch.device | str) -> "Captions":
        """Returns the same captions with their positions on another device."""
        return Captions(self.texts, self.ids, self.first.to(device), self.count.to(device))

    def drawn(
        self, images: Int64[Tensor, " batch"], chance: Float[Tensor, " batch"]
    ) -> Int64[Tensor, " batch"]:
        """Returns the position of one text of each image.

        Args:
            images: Positions of the images.
            chance: Random numbers in [0, 1), one per image.

        Example:
            >>> captions = collect_captions([("a", "b"), ("c",)], ["x", "y"])
            >>> captions.drawn(torch.tensor([1, 0]), torch.tensor([0.9, 0.9]))
            tensor([2, 1])
        """
        return self.first[images] + (chance * self.count[images]).long()


def collect_captions(captions: Sequence[Sequence[str]], ids: Sequence[str]) -> Captions:
    """Joins the captions of the images with these ids.

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
    """Raises if an image, named by `ids`, has no text, or if a text is blank."""
    if (silent := captions.count == 0).any():
        first = int(silent.nonzero()[0])
        raise DataError(
            f"Each image must have a text, but {int(silent.sum())} of {len(ids)} have none; the "
            f"first is {ids[first]!r}. Describe them, or set their split to `unused`."
        )
    blank = [i for i, text in zip(captions.ids, captions.texts, strict=True) if not text.strip()]
    if blank:
        raise DataError(
            f"{len(blank)} of {len(captions.texts)} texts are empty; the first is {blank[0]!r}. "
            f"Write or remove them."
        )

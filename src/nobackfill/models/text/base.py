"""The interface of text encoders, and a check of texts."""

from collections.abc import Sequence

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.errors import DataError


class TextEncoder(nn.Module):
    """An encoder from texts to feature vectors, in two steps.

    `prepare` turns texts into numbers, once and on the CPU; `forward` turns these into features, at
    every step and on the device.

    Attributes:
        feature_dim: Number of features of a text.
    """

    feature_dim: int

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Shaped[Tensor, "texts ..."]:
        """Returns the input of `forward` for texts; ids such as "photo.jpg#0" are for errors."""
        raise NotImplementedError

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns the features of each text, given rows of the result of `prepare`."""
        raise NotImplementedError


def check_texts(texts: Sequence[str], ids: Sequence[str]) -> None:
    """Raises if a text is blank, or if there are not as many texts as ids."""
    if len(texts) != len(ids):
        raise DataError(
            f"There are {len(texts)} texts and {len(ids)} ids. Check that both come from the same "
            f"items."
        )
    blank = [item for text, item in zip(texts, ids, strict=True) if not text.strip()]
    if blank:
        raise DataError(
            f"{len(blank)} of {len(texts)} texts are empty or blank; the first is {blank[0]!r}. "
            f"Write them, or leave these items out."
        )

"""What every text encoder is from outside, and what is asked of every text."""

from collections.abc import Sequence

from jaxtyping import Float, Shaped
from torch import Tensor, nn

from nobackfill.errors import DataError


class TextEncoder(nn.Module):
    """Texts in, one feature vector each out, in two steps.

    `prepare` turns texts into numbers, once and by the processor; `forward` turns these into
    features, at every step and on the device.

    Attributes:
        feature_dim: How many features a text has.
        says: What `prepare` does, in words: part of a vector's fingerprint.
    """

    feature_dim: int
    says: str

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Shaped[Tensor, "texts ..."]:
        """Returns what `forward` takes of each text.

        Args:
            texts: In plain words.
            ids: Their names, such as "photo.jpg#0".
        """
        raise NotImplementedError

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns the features of each text, given rows of what `prepare` returned."""
        raise NotImplementedError


def check_texts(texts: Sequence[str], ids: Sequence[str]) -> None:
    """Refuses a text in which nothing stands, and texts that are not as many as their ids."""
    if len(texts) != len(ids):
        raise DataError(
            f"wanted an id for each text, but got {len(texts)} texts and {len(ids)} ids. Check "
            f"that both come from the same items."
        )
    blank = [one for text, one in zip(texts, ids, strict=True) if not text.strip()]
    if blank:
        raise DataError(
            f"wanted words in every text, but {len(blank)} of {len(texts)} are empty or blank, the "
            f"first being {blank[0]!r}. Write them, or leave these items out."
        )

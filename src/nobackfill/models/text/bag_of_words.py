"""Text encoders: hashed words, stored vectors, and the table of all encoders."""

import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nobackfill.core.atomic_files import find_path
from nobackfill.errors import ConfigError, DataError
from nobackfill.models.aptm.fusion import aptm_text, resolve_aptm_text
from nobackfill.models.text.base import TextEncoder, check_texts
from nobackfill.models.text.transformers import resolve_texts, transformers_text
from nobackfill.vectors import Vectors, load_vectors

__all__ = ["TEXT_ENCODERS", "TEXT_RESOLVERS", "TextEncoder", "vectors", "words"]

WORD = re.compile(r"[^\W_]+")  # letters and digits, of any script
PADDING = 0  # bucket that fills up short texts


class Words(TextEncoder):
    """The mean of learned vectors of words and of pairs of neighbouring words, then one layer.

    Pairs distinguish "top left to centre" from "centre to top left", which have the same words.
    """

    def __init__(self, *, buckets: int, width: int, longest: int):
        super().__init__()
        self.buckets, self.longest, self.feature_dim = buckets, longest, width
        self.table = nn.EmbeddingBag(1 + buckets, width, mode="mean", padding_idx=PADDING)
        self.layer = nn.Sequential(nn.Linear(width, width), nn.ReLU())

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Int64[Tensor, "texts pieces"]:
        """Returns the buckets of the words and pairs of each text, filled up with 0."""
        check_texts(texts, ids)
        rows = [buckets_of(text, self.buckets, self.longest) for text in texts]
        wordless = [item for row, item in zip(rows, ids, strict=True) if not row]
        if wordless:
            raise DataError(
                f"{len(wordless)} of {len(texts)} texts have no word of letters or digits; the "
                f"first is {wordless[0]!r}. Correct them, or leave these items out."
            )
        padded = [torch.tensor(row) for row in [*rows, [PADDING]]]  # one more: there may be no text
        return pad_sequence(padded, batch_first=True, padding_value=PADDING)[:-1]

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns the features of each text."""
        features: Tensor = self.layer(self.table(prepared))
        return features


def words(*, buckets: int = 4096, width: int = 128, longest: int = 64) -> TextEncoder:
    """Makes the built-in encoder, which requires no package and no weights: see `Words`.

    Args:
        buckets: Number of vectors; the one of a word or pair is chosen by a hash of its letters.
        width: Number of features of a text.
        longest: Maximal number of words of a text; the rest is ignored.

    Example:
        >>> encoder = words(width=8)
        >>> encoder(encoder.prepare(["a red coat", "a coat"], ["1", "2"])).shape
        torch.Size([2, 8])
    """
    for name, value in (("buckets", buckets), ("width", width), ("longest", longest)):
        if value < 1:
            raise ConfigError(f"`{name}` in [text] must be at least 1, not {value}.")
    return Words(buckets=buckets, width=width, longest=longest)


def buckets_of(text: str, buckets: int, longest: int) -> list[int]:
    """Returns the buckets, from 1, of the words of a text and then of its pairs of neighbours.

    Example:
        >>> buckets_of("A red, red coat", 4096, 64)
        [3652, 3984, 3984, 1072, 68, 2236, 958]
    """
    single = WORD.findall(unicodedata.normalize("NFKC", text).lower())[:longest]
    pieces = [*single, *map(" ".join, pairwise(single))]
    return [1 + zlib.crc32(piece.encode()) % buckets for piece in pieces]


class StoredVectors(TextEncoder):
    """Lookup of the vectors that another model has made of the texts; see `vectors`."""

    def __init__(self, *, path: str | None, width: int, space: str | None):
        super().__init__()
        self.path, self.feature_dim, self.space = path, width, space

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Float[Tensor, "texts features"]:
        """Returns the vector of each text, by its id."""
        check_texts(texts, ids)
        file = _open(self.path)
        space = _space_of(file)
        if file.dim != self.feature_dim or self.space not in (None, space):
            raise DataError(
                f"{self.path} must contain given vectors of {self.feature_dim} dimensions, made by "
                f"{self.space or 'an unknown model'}, but they have {file.dim} dimensions and are "
                f"made by {space or 'an unknown model'}. Restore the file that the encoder was "
                f"made with, or embed the texts by the same model."
            )
        row_of = {str(item): row for row, item in enumerate(file.ids.tolist())}
        if missing := [item for item in ids if item not in row_of]:
            raise DataError(
                f"{self.path} lacks the vectors of {len(missing)} of {len(ids)} texts; the first "
                f"is {missing[0]!r}. The file has ids such as {next(iter(row_of), None)!r}; embed "
                f"the missing texts."
            )
        rows = torch.tensor([row_of[item] for item in ids], dtype=torch.int64)
        return file.vectors[rows].float()

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns the vectors unchanged."""
        return prepared


def vectors(
    *, path: str | None = None, width: int | None = None, space: str | None = None
) -> TextEncoder:
    """Makes an encoder of stored vectors, which a frozen model has made of the texts.

    Args:
        path: File of vectors (.parquet, .safetensors, .npz) with the ids of the texts; it is first
            read when texts are prepared.
        width: Number of dimensions; with `path`, it is read there.
        space: Fingerprint of the vectors; with `path`, it is read there.
    """
    options = resolve_vectors({"path": path, "width": width, "space": space})
    return StoredVectors(path=path, width=options["width"], space=options["space"])


def resolve_vectors(options: Mapping[str, Any]) -> dict[str, Any]:
    """Adds the dimensions and the fingerprint of the vectors in the file at `path`.

    A finished run can then be built again from its recipe, even if the file is gone.
    """
    if options["width"] is not None:
        return dict(options)
    file = _open(options["path"])
    return {**options, "width": file.dim, "space": _space_of(file)}


def _open(path: str | None) -> Vectors:
    if path is None:
        raise ConfigError("[text] has no `path`, the file of the texts' vectors. Add it.")
    return load_vectors(find_path(path, "text vectors"))


def _space_of(file: Vectors) -> str | None:
    return file.space.fingerprint if file.space else None


TEXT_ENCODERS: dict[str, Callable[..., TextEncoder]] = {
    "words": words,
    "vectors": vectors,
    "transformers": transformers_text,
    "aptm": aptm_text,
}

# Functions that complete the options of an encoder, so that it can be built again from them.
TEXT_RESOLVERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "vectors": resolve_vectors,
    "transformers": resolve_texts,
    "aptm": resolve_aptm_text,
}

"""Text encoders: texts in, one feature vector each out."""

import re
import unicodedata
import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int64, Shaped
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from nobackfill.core.atomic_files import find_path
from nobackfill.errors import ConfigError, DataError
from nobackfill.models.text.base import TextEncoder, check_texts
from nobackfill.models.text.transformers import resolve_texts, transformers_text
from nobackfill.vectors import Vectors, load_vectors

__all__ = ["TEXT_ENCODERS", "TEXT_RESOLVERS", "TextEncoder", "vectors", "words"]

WORD = re.compile(r"[^\W_]+")  # letters and digits, of any script
NOTHING = 0  # the bucket that fills up short texts


class Words(TextEncoder):
    """Words and pairs of neighbouring words, a learned vector for each, averaged; then one layer.

    Pairs tell "top left to centre" from "centre to top left", which have the same words.

    Args:
        buckets: How many vectors there are; which one a word gets is a hash of its letters.
        width: Of the vectors, and how many features a text has.
        longest: How many words of a text are read.
    """

    def __init__(self, *, buckets: int, width: int, longest: int):
        super().__init__()
        self.buckets, self.longest, self.feature_dim = buckets, longest, width
        self.says = (
            f"lower-cased words and pairs of neighbours, the first {longest} words, hashed into "
            f"{buckets} buckets"
        )
        self.table = nn.EmbeddingBag(1 + buckets, width, mode="mean", padding_idx=NOTHING)
        self.layer = nn.Sequential(nn.Linear(width, width), nn.ReLU())

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Int64[Tensor, "texts pieces"]:
        """Returns the buckets of the words and pairs of each text, 0 standing for none."""
        check_texts(texts, ids)
        rows = [buckets_of(text, self.buckets, self.longest) for text in texts]
        wordless = [one for row, one in zip(rows, ids, strict=True) if not row]
        if wordless:
            raise DataError(
                f"wanted a word of letters or digits in every text, but {len(wordless)} of "
                f"{len(texts)} have none, the first being {wordless[0]!r}. Correct them, or leave "
                f"these items out."
            )
        padded = [torch.tensor(row) for row in [*rows, [NOTHING]]]  # one more: there may be no text
        return pad_sequence(padded, batch_first=True, padding_value=NOTHING)[:-1]

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns the features of each text."""
        features: Tensor = self.layer(self.table(prepared))
        return features


def words(*, buckets: int = 4096, width: int = 128, longest: int = 64) -> TextEncoder:
    """The built-in encoder, which wants no package and no weights: see `Words`.

    Args:
        buckets: How many vectors words and pairs of words share; the more, the fewer are mixed up.
        width: How many features a text has.
        longest: How many words of a text are read; what follows is passed over.

    Example:
        >>> encoder = words(width=8)
        >>> encoder(encoder.prepare(["a red coat", "a coat"], ["1", "2"])).shape
        torch.Size([2, 8])
    """
    for name, value in (("buckets", buckets), ("width", width), ("longest", longest)):
        if value < 1:
            raise ConfigError(f"wanted `{name}` in [text] to be at least 1, but got {value}.")
    return Words(buckets=buckets, width=width, longest=longest)


def buckets_of(text: str, buckets: int, longest: int) -> list[int]:
    """The buckets, from 1, of the words of a text and then of its pairs of neighbouring words.

    Example:
        >>> buckets_of("A red, red coat", 4096, 64)
        [3652, 3984, 3984, 1072, 68, 2236, 958]
    """
    plain = unicodedata.normalize("NFKC", text).lower()
    single = WORD.findall(plain)[:longest]
    pairs = [f"{one} {next_one}" for one, next_one in zip(single, single[1:], strict=False)]
    return [1 + zlib.crc32(piece.encode()) % buckets for piece in [*single, *pairs]]


class Given(TextEncoder):
    """Features that another model made of the texts, once; this one only looks them up.

    Args:
        path: The file of their vectors; nothing is read before `prepare` asks.
        width: How many features a text has.
        space: Fingerprint of what made the vectors, if that is known.
    """

    def __init__(self, *, path: str | None, width: int, space: str | None):
        super().__init__()
        self.path, self.feature_dim, self.space = path, width, space
        self.says = f"given vectors of {width} dimensions, made by {space or 'an unknown model'}"

    def prepare(self, texts: Sequence[str], ids: Sequence[str]) -> Float[Tensor, "texts features"]:
        """Returns the vector that the file has under the id of each text."""
        check_texts(texts, ids)
        found = _open(self.path)
        made_by = found.space.fingerprint if found.space else None
        if found.dim != self.feature_dim or self.space not in (None, made_by):
            raise DataError(
                f"wanted {self.says}, in {self.path}, but they have {found.dim} dimensions and are "
                f"made by {made_by or 'an unknown model'}. Put the file back that the encoder was "
                f"made with, or embed the texts by the same model."
            )
        row_of = {str(one): row for row, one in enumerate(found.ids.tolist())}
        missing = [one for one in ids if one not in row_of]
        if missing:
            raise DataError(
                f"wanted the vector of every text in {self.path}, but {len(missing)} of {len(ids)} "
                f"are missing, the first being {missing[0]!r}. The file has ids such as "
                f"{next(iter(row_of), None)!r}; embed the texts that are missing."
            )
        rows = torch.tensor([row_of[one] for one in ids], dtype=torch.int64)
        return found.vectors[rows].float()

    def forward(self, prepared: Shaped[Tensor, "texts ..."]) -> Float[Tensor, "texts features"]:
        """Returns what it is given."""
        return prepared


def vectors(
    *, path: str | None = None, width: int | None = None, space: str | None = None
) -> TextEncoder:
    """Texts that a frozen model has embedded already: see `Given`.

    Args:
        path: A file of vectors (.parquet, .safetensors, .npz), whose ids are those of the texts.
        width: How many dimensions they have; with `path`, it is read there.
        space: Fingerprint of what made them; with `path`, it is read there.
    """
    found = resolve_vectors({"path": path, "width": width, "space": space})
    return Given(path=path, width=found["width"], space=found["space"])


def resolve_vectors(options: Mapping[str, Any]) -> dict[str, Any]:
    """Writes out what the file at `path` says of its vectors.

    So that a finished run is built again from its recipe, wherever the file has gone.
    """
    if options["width"] is not None:
        return dict(options)
    found = _open(options["path"])
    space = found.space.fingerprint if found.space else None
    return {**options, "width": found.dim, "space": space}


def _open(path: str | None) -> Vectors:
    if path is None:
        raise ConfigError(
            "wanted `path` in [text], the file of the texts' vectors, but got none. Write where it "
            "lies."
        )
    return load_vectors(find_path(path, "text vectors"))


TEXT_ENCODERS: dict[str, Callable[..., TextEncoder]] = {
    "words": words,
    "vectors": vectors,
    "transformers": transformers_text,
}

# Of encoders whose options say less than is needed to build them again.
TEXT_RESOLVERS: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
    "vectors": resolve_vectors,
    "transformers": resolve_texts,
}

"""Old vectors of texts: read from a file or from memory, or made by the old model."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from nobackfill.errors import DataError
from nobackfill.integrations.sentence_transformers.query_map import query_map_of
from nobackfill.models.evaluating import evaluating
from nobackfill.vectors import Vectors, load_vectors

BATCH = 64  # texts that the old model embeds at a time

Documents = Iterable[str] | Mapping[Any, str] | None


@dataclass(frozen=True, eq=False)
class OldTexts:
    """Texts and the old vector of each.

    Attributes:
        texts: The texts, each once if the old model embedded them; None if a text is not known.
        vectors: Old vector of each text.
        file: The vectors that were read, with their labels and columns; None if there are none.
    """

    texts: Sequence[str | None]
    vectors: Float[Tensor, "rows dim"]
    file: Vectors | None = None

    @classmethod
    def read(cls, old: Any, texts: Documents = None, *, role: str = "document") -> "OldTexts":
        """Reads old vectors of texts in any form.

        Args:
            old: One of

                - a `SentenceTransformer`: it embeds `texts`, each once;
                - the path of a vectors file, or `Vectors`: with a column `text`, or with ids that
                  are the texts, or with ids and `texts` as a mapping from id to text;
                - a mapping from text to vector;
                - a pair of texts and an array.
            texts: The texts to embed, or the text of each id.
            role: "document" or "query": which prompt the old model puts before the texts.
        """
        if isinstance(old, OldTexts):
            return old
        if isinstance(old, str | Path):
            old = load_vectors(old)
        if isinstance(old, Vectors):
            return cls(texts_of(old, texts), old.vectors, old)
        if isinstance(old, Mapping):
            return cls(list(old), as_tensor(list(old.values())))
        if isinstance(old, tuple) and len(old) == 2:
            return cls(list(old[0]), as_tensor(old[1])).checked()
        if hasattr(old, "encode"):
            return cls.embedded(old, texts, role=role)
        raise DataError(
            f"Old vectors cannot be read from {type(old).__name__}. Pass the path of a vectors "
            f"file, `Vectors`, a mapping from text to vector, a pair of texts and an array, or the "
            f"old SentenceTransformer."
        )

    @classmethod
    def embedded(cls, model: Any, texts: Documents, *, role: str) -> "OldTexts":
        """Embeds texts with the old model, each once, as it embeds documents or queries."""
        if texts is None:
            raise DataError(
                "The old model needs texts to embed. Pass those of the training documents, such as "
                '`documents=train_dataset["positive"]`.'
            )
        unique = list(dict.fromkeys(texts.values() if isinstance(texts, Mapping) else texts))
        if not unique:
            raise DataError("There are no texts to embed with the old model. Check `documents`.")
        vectors = encode(model, unique, role)
        return cls(unique, vectors)

    def checked(self) -> "OldTexts":
        """Returns the same; raises unless there is one vector per text."""
        if len(self.texts) != len(self.vectors):
            raise DataError(
                f"Each text needs an old vector, but there are {len(self.texts):,} texts and "
                f"{len(self.vectors):,} vectors. Take both from the same documents."
            )
        return self

    def groups(self, named: str | Sequence[Any]) -> Int[Tensor, " rows"]:
        """Returns the group of each text: a column of the file, or one value per text."""
        values: Any = named
        if isinstance(named, str):
            known = {} if self.file is None else dict(self.file.columns)
            if self.file is not None and self.file.labels is not None:
                known["label"] = self.file.labels
            if named not in known:
                raise DataError(
                    f"The old vectors have no column {named!r} of groups, but "
                    f"{', '.join(known) or 'no columns'}. Name one of these, or pass a group for "
                    f"each text."
                )
            values = known[named]
        names = np.asarray(list(values))
        if len(names) != len(self.texts):
            raise DataError(
                f"Each old text needs a group, but there are {len(names):,} groups and "
                f"{len(self.texts):,} texts."
            )
        return torch.from_numpy(np.unique(names, return_inverse=True)[1])

    def of(self, texts: Sequence[str], what: str) -> Float[Tensor, "texts dim"]:
        """Returns the old vectors of some texts; raises if one has none."""
        row = {text: number for number, text in enumerate(self.texts)}
        missing = [text for text in texts if text not in row]
        if missing:
            raise DataError(
                f"{len(missing):,} of {len(texts):,} {what} have no old vector, the first is "
                f"{missing[0][:80]!r}. Embed them with the old model too, or pass the old model."
            )
        return self.vectors[torch.tensor([row[text] for text in texts])]


def encode(
    model: Any, texts: Sequence[str], role: str, batch_size: int = BATCH
) -> Float[Tensor, "texts dim"]:
    """Embeds texts without gradient, and returns vectors on the CPU; keeps the model's mode.

    Args:
        model: SentenceTransformer.
        texts: Texts.
        role: "document" and "query" embed as `encode_document` and `encode_query` do. "plain query"
            is a query for documents of the same model: it has the prompt of queries, but is not
            mapped by `add_query_map`.
        batch_size: Number of texts at a time.
    """
    settings: dict[str, Any] = {
        "batch_size": batch_size,
        "convert_to_tensor": True,
        "show_progress_bar": False,
    }
    if role == "plain query" and query_map_of(model) is not None:
        settings |= {"prompt": (model.prompts or {}).get("query") or None, "task": "document"}
        embed = model.encode
    else:
        embed = model.encode_document if role == "document" else model.encode_query
    with evaluating(model):
        vectors = embed(list(texts), **settings)
    return torch.as_tensor(vectors).detach().float().cpu().clone()  # not an inference tensor


def texts_of(old: Vectors, texts: Documents) -> list[str | None]:
    """Returns the text of each old vector: by id, from the column `text`, or the id itself."""
    if isinstance(texts, Mapping):
        by_id = {str(key): text for key, text in texts.items()}
        ids = [str(item) for item in old.ids.tolist()]
        if not any(item in by_id for item in ids):
            raise DataError(
                f"None of the ids in `documents` is an id of the old vectors, which begin with "
                f"{ids[0]!r}. Pass the texts by the ids of the old file."
            )
        return [by_id.get(item) for item in ids]
    if "text" in old.columns:
        return [str(text) for text in old.columns["text"].tolist()]
    if old.ids.dtype.kind not in "iu":
        return [str(item) for item in old.ids.tolist()]
    raise DataError(
        "The old vectors have ids but no texts, so that no text can be found among them. Add a "
        "column `text` to the file, or pass `documents` as a mapping from id to text."
    )


def as_tensor(vectors: Any) -> Float[Tensor, "rows dim"]:
    """Returns vectors as one tensor on the CPU."""
    if isinstance(vectors, Tensor):
        return vectors.detach().cpu()
    if isinstance(vectors, np.ndarray):
        return torch.from_numpy(vectors)
    return torch.stack([torch.as_tensor(vector).detach().cpu() for vector in vectors])

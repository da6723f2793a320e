"""Collections of texts: queries and the documents that answer them, in groups."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nobackfill.core.short import Short
from nobackfill.errors import DataError


class TextPair(NamedTuple):
    """A query and a document that answers it.

    Attributes:
        query: Text of the query.
        document: Text of the document.
        query_id: Id of the query.
        document_id: Id of the document.
        negatives: Texts that do not answer the query.
        group: Group of the document, "" for none. No document of a group is a wrong answer to a
            query of the same group, so training never shows two of them at once.
    """

    query: str
    document: str
    query_id: str
    document_id: str
    negatives: tuple[str, ...] = ()
    group: str = ""


@dataclass(frozen=True, eq=False, repr=False)
class Texts(Short):
    """Texts of a collection. A document answers a query if both are in the same group.

    Attributes:
        ids: Id of each text.
        texts: All texts.
        groups: Name of the group of each text, such as the photograph that it describes.
        columns: More values per text. Always `split` ("train", "validation" for those that are
            searched, or "unused"), `is_query` and `is_gallery` (the documents).
        notes: Notes for the reader, such as what was left out.
    """

    ids: list[str]
    texts: list[str]
    groups: NDArray[Any]
    columns: Mapping[str, NDArray[Any]]
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        lengths = {len(self.texts), len(self.groups), *(len(c) for c in self.columns.values())}
        assert lengths == {len(self.ids)}, "one text, group and value of each column per id"
        if not self.ids:
            raise DataError("The collection has no texts. Check the path.")

    def pairs(self, split: str) -> list[TextPair]:
        """Returns each query of a split with each document of its group.

        Example:
            >>> both = np.array([True, True])
            >>> columns = {"split": np.array(["train"] * 2), "is_query": both, "is_gallery": ~both}
            >>> Texts(["a", "b"], ["x", "y"], np.array([1, 1]), columns).pairs("train")
            []
        """
        queries: dict[Any, list[int]] = {}
        documents: dict[Any, list[int]] = {}
        for row in np.flatnonzero(self.columns["split"] == split).tolist():
            for sides, role in ((queries, "is_query"), (documents, "is_gallery")):
                if self.columns[role][row]:
                    sides.setdefault(self.groups[row], []).append(row)
        return [
            TextPair(
                self.texts[query],
                self.texts[document],
                self.ids[query],
                self.ids[document],
                group=str(group),
            )
            for group, rows in queries.items()
            for query, document in product(rows, documents.get(group, []))
            if query != document
        ]

    def counts(self) -> dict[str, int]:
        """Returns the numbers of texts, groups, training pairs, queries and documents."""
        searched = self.columns["split"] == "validation"
        return {
            "texts": len(self.ids),
            "groups": len(set(self.groups.tolist())),
            "train_pairs": len(self.pairs("train")),
            "queries": int((searched & self.columns["is_query"]).sum()),
            "documents": int((searched & self.columns["is_gallery"]).sum()),
        }


@dataclass(frozen=True)
class TextDataset:
    """A public collection of texts: its files, its reader and its official counts.

    Attributes:
        description: Description in one line.
        layout: Files that are expected, one per line.
        read: Function from the path to the texts.
        counts: Counts that its authors state, named as in `Texts.counts`.
        place: Path that is read if the user names none; "" if there is no usual place.
    """

    description: str
    layout: str
    read: Callable[[Path], Texts]
    counts: Mapping[str, int]
    place: str = ""

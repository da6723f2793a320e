"""Listings: the items of a collection, read from its lists before any image is opened."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nobackfill.core.short import Short
from nobackfill.errors import DataError

LAYOUT = "Unpack the collection as its authors lay it out (`nobackfill datasets` shows the layout)."


@dataclass(frozen=True)
class Judgement:
    """What a person who saw the results of a query by two models prefers.

    Attributes:
        before: Ids of the results of the old query that the person saw, best first.
        after: Ids of the results of the new query, likewise.
        preferred: "before", "after" or "equal".
    """

    before: Sequence[str]
    after: Sequence[str]
    preferred: str


@dataclass(frozen=True, repr=False)
class GroundTruth(Short):
    """The relevant items of each query, for collections that list them instead of labels.

    Attributes:
        relevant: Ids of the relevant items, by the id of the query.
        ignored: Ids of the items that count neither as right nor as wrong, by the id of the query.
        judgements: Judgement of each query, if a person judged results; only these were seen.
    """

    relevant: Mapping[str, Sequence[str]]
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    judgements: Mapping[str, Judgement] = field(default_factory=dict)


@dataclass(frozen=True, eq=False, repr=False)
class Listing(Short):
    """The items of a collection, in the order of its lists.

    Attributes:
        root: Folder that `files` are relative to.
        files: Image of each item, with "/" between folders. Also its id, unless `ids` is set.
        classes: Name of each item's class; "" for none.
        columns: More values per item. Always `split`: "train", "validation" (searched) or "unused".
            `is_query` and `is_gallery` if queries differ from the gallery; `camera` if there are
            cameras.
        ids: Id of each item, if it is not its file.
        captions: Texts of each item, if there are any.
        boxes: Crop of the image of a row in pixels: left, top, right, bottom. Other rows are not
            cropped.
        ground_truth: Relevant items of the queries, by the name of each way to count them.
        notes: Notes for the reader, such as what was left out.
    """

    root: Path
    files: list[str]
    classes: NDArray[Any]
    columns: Mapping[str, NDArray[Any]]
    ids: list[str] | None = None
    captions: list[tuple[str, ...]] | None = None
    boxes: Mapping[int, tuple[float, float, float, float]] = field(default_factory=dict)
    ground_truth: Mapping[str, GroundTruth] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids = self.files if self.ids is None else self.ids
        lengths = {len(ids), len(self.classes), *(len(c) for c in self.columns.values())}
        assert lengths == {len(self.files)}, "one id, class and value of each column per file"
        for kind, names in (("image", self.files), ("item", ids)):
            if len(set(names)) < len(names):
                repeated = next(name for name, count in Counter(names).items() if count > 1)
                raise DataError(
                    f"The lists in {self.root} name the {kind} {repeated} twice. Remove one of the "
                    f"lines."
                )


@dataclass(frozen=True)
class Dataset:
    """A public collection: its layout, its reader and its official counts.

    Attributes:
        description: Description in one line.
        layout: Files that are expected below its folder, one per line.
        read: Function from the folder to the listing; its options are keyword-only arguments.
        counts: Counts that its authors state, named as in `count_items`.
        protocol: Search protocol, a name of `nobackfill.evaluation.protocols.PROTOCOLS`.
    """

    description: str
    layout: str
    read: Callable[..., Listing]
    counts: Mapping[str, int] = field(default_factory=dict)
    protocol: str = "plain"


def role_columns(roles: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Returns `split`, `is_query` and `is_gallery` of items, given the role of each.

    Example:
        >>> role_columns(np.array(["train", "query", "gallery", "unused"]))["split"].tolist()
        ['train', 'validation', 'validation', 'unused']
    """
    is_query, is_gallery = roles == "query", roles == "gallery"
    split = np.where(is_query | is_gallery, "validation", roles)
    return {"split": split, "is_query": is_query, "is_gallery": is_gallery}


def count_items(listing: Listing) -> dict[str, int]:
    """Returns the counts of a listing.

    They are `images` (all), `train_images`, `train_classes`, `queries`, `gallery`, and, if there
    are any, `search_classes` (classes of the searched images) and `captions`.
    """
    split = listing.columns["split"]
    is_train, is_searched = split == "train", split == "validation"
    counts = {
        "images": len(listing.files),
        "train_images": int(is_train.sum()),
        "train_classes": len(set(listing.classes[is_train]) - {""}),
    }
    for role, column in (("queries", "is_query"), ("gallery", "is_gallery")):
        has_role = listing.columns.get(column, is_searched)
        counts[role] = int((is_searched & has_role).sum())
    if search_classes := set(listing.classes[is_searched]) - {""}:
        counts["search_classes"] = len(search_classes)
    if listing.captions is not None:
        counts["captions"] = sum(len(texts) for texts in listing.captions)
    return counts


def split_counts(*, train: tuple[int, int], searched: tuple[int, int]) -> dict[str, int]:
    """Returns the official counts of a collection in which every searched image is a query too.

    Both arguments are a number of images and a number of classes.
    """
    return {
        "images": train[0] + searched[0],
        "train_images": train[0],
        "train_classes": train[1],
        "queries": searched[0],
        "gallery": searched[0],
        "search_classes": searched[1],
    }


def invalid(path: Path, problem: str, remedy: str = "Unpack the file again.") -> DataError:
    """Returns the error for a file that does not contain what it should."""
    return DataError(f"Invalid file {path}: {problem}. {remedy}")


def read_text(path: Path, what: str) -> str:
    """Reads a text file of a collection; `what` names it in errors ("the list of images")."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(
            f"Cannot read {what} at {path}: {error.strerror or error}. {LAYOUT}"
        ) from None
    except UnicodeDecodeError:
        raise invalid(path, f"{what} is not UTF-8 text") from None


def read_table(
    path: Path, what: str, *, separator: str | None, columns: int, skip: int = 0
) -> list[list[str]]:
    """Reads the rows of a text file, without empty lines.

    Args:
        path: Path of the file.
        what: Noun phrase for errors, such as "the list of images".
        separator: Separator of columns; None for any white space.
        columns: Number of columns.
        skip: Number of lines before the first row.
    """
    rows = []
    for number, line in enumerate(read_text(path, what).splitlines()[skip:], start=skip + 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(separator)]
        if len(cells) != columns:
            kind = "white space" if separator is None else repr(separator)
            raise invalid(
                path,
                f"line {number} must have {columns} columns separated by {kind}, but has "
                f"{len(cells)}: {line[:80]!r}",
                "Check the separator, or unpack the file again.",
            )
        rows.append(cells)
    if not rows:
        raise invalid(path, f"{what} is empty")
    return rows


def require_folder(path: Path, what: str) -> Path:
    """Returns the path of a folder, which must exist."""
    if not path.is_dir():
        raise DataError(f"No {what} at {path}: the folder does not exist. {LAYOUT}")
    return path

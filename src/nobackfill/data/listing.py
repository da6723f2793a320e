"""What a collection of images holds, told before any image is opened."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from nobackfill.errors import DataError


@dataclass(frozen=True)
class GroundTruth:
    """What each query shall find, by ids: for collections that list it instead of labelling.

    Attributes:
        relevant: For the id of each query, the ids of what it shall find.
        ignored: For the id of each query, the ids of what counts neither way.
    """

    relevant: Mapping[str, Sequence[str]]
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Listing:
    """The items of a collection, in the order of its lists.

    Attributes:
        root: The folder that `files` are relative to.
        files: The image of each item, with "/" between folders. Also its id, where it has no other.
        classes: The name of each item's class; "" where it has none.
        columns: What else is known of each item. Always `split`: "train" for what models are
            trained on, "validation" for what is searched. Where queries and gallery are told apart,
            `is_query` and `is_gallery`; where there are cameras, `camera`.
        ids: The name of each item, where that is not its file.
        captions: The texts of each item, where there are any.
        boxes: Which part of the image of a row to take, in its pixels: left, top, right, bottom.
            Rows that are not named are taken whole.
        ground_truth: What queries shall find, under the name of each way to count it.
        notes: What a reader should know, such as what was left out.
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
        names = self.files if self.ids is None else self.ids
        lengths = {len(names), len(self.classes), *(len(c) for c in self.columns.values())}
        assert lengths == {len(self.files)}, "one id, class and value of each column per file"
        for kind, each in (("image", self.files), ("item", names)):
            if len(set(each)) < len(each):
                raise DataError(
                    f"wanted every {kind} once, but the lists in {self.root} name "
                    f"{first_twice(each)} twice. Remove one of the lines."
                )


def first_twice(names: Sequence[str]) -> str:
    """The first name that was there before."""
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    raise ValueError("each name is there once")


@dataclass(frozen=True)
class Dataset:
    """A public collection: how it is laid out, how it is read, and what it should hold.

    Attributes:
        says: What it is, in one line.
        layout: The files that are expected below its folder, one to a line.
        read: Its folder in, its listing out. What the user may choose are keyword-only arguments.
        counts: What its authors say it holds, of `count_items`' names.
        protocol: How it is searched; a name of `nobackfill.evaluation.protocols.PROTOCOLS`.
    """

    says: str
    layout: str
    read: Callable[..., Listing]
    counts: Mapping[str, int] = field(default_factory=dict)
    protocol: str = "plain"


def count_items(listing: Listing) -> dict[str, int]:
    """How much a listing holds.

    Returns:
        `images` (all), `train_images`, `train_classes`, and of what is searched `queries` and
        `gallery`; `search_classes` where what is searched has classes; `captions` where there are
        any.
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
    if searched := set(listing.classes[is_searched]) - {""}:
        counts["search_classes"] = len(searched)
    if listing.captions is not None:
        counts["captions"] = sum(len(texts) for texts in listing.captions)
    return counts


def read_text(path: Path, what: str) -> str:
    """Returns the text of a list of the collection; raises where it is not there.

    Args:
        path: Of the list.
        what: It is, in words, for the error: "the list of training images".
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise DataError(
            f"wanted {what} at {path}, but {error.strerror or error}. Unpack the collection as its "
            f"authors lay it out (`nobackfill datasets` shows what is expected)."
        ) from None
    except UnicodeDecodeError:
        raise DataError(
            f"wanted {what} as text, but {path} is not UTF-8. Unpack it anew."
        ) from None


def read_table(
    path: Path, what: str, *, separator: str | None, columns: int, skip: int = 0
) -> list[list[str]]:
    """Returns the lines of a list, split into columns; empty lines are left out.

    Args:
        path: Of the list.
        what: It is, in words.
        separator: Between columns; None for any white space.
        columns: How many there must be.
        skip: How many lines at the head are no items.
    """
    rows = []
    for number, line in enumerate(read_text(path, what).splitlines()[skip:], start=skip + 1):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split(separator)]
        if len(cells) != columns:
            kind = "white space" if separator is None else repr(separator)
            raise DataError(
                f"wanted {columns} columns with {kind} between them in {path}, but line {number} "
                f"has {len(cells)}: {line[:80]!r}. Check the separator, or unpack the file anew."
            )
        rows.append(cells)
    if not rows:
        raise DataError(f"wanted {what} in {path}, but it names nothing. Unpack it anew.")
    return rows


def require_folder(path: Path, what: str) -> Path:
    """Returns a folder that must be there."""
    if not path.is_dir():
        raise DataError(
            f"wanted {what} at {path}, but there is no such folder. Unpack the collection as its "
            f"authors lay it out (`nobackfill datasets` shows what is expected)."
        )
    return path

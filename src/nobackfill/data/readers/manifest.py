"""Any table of images, or of their texts, as CSV or Parquet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nobackfill.data.listing import Dataset, Listing, require_folder
from nobackfill.data.tables import as_text, read_columns, require_filled
from nobackfill.errors import DataError
from nobackfill.vectors.columns import FLAGS, as_flag
from nobackfill.vectors.parquet import to_numpy

TEXT = ("id", "path", "label", "split", "text")  # always text, so that "007" stays what it is
SEARCHED = dict.fromkeys(("validation", "val", "test"), "validation")
SPLITS = {"train": "train", **SEARCHED, "unused": "unused"}
NOT_CARRIED = ("vector",)  # there are none yet


def read_manifest(root: Path, *, images: str | None = None) -> Listing:
    """Reads a table with the columns `path` and `label`.

    Where there, `split` is "train" or "validation" ("val" and "test" mean the same); without it,
    what asks or is searched is for validation and the rest for training, and where nothing tells
    queries from gallery, all is for validation. `text` is a caption; with it, an image may stand in
    several rows, one for each of its captions. `is_query`, `is_gallery`, `camera` and any other
    column are carried along. Items are named by `id`, or by their path.

    Args:
        root: The file, `.csv` (with commas) or `.parquet`.
        images: The folder that paths are relative to; that of the file if left out.
    """
    folder = root.parent if images is None else require_folder(Path(images), "the images")
    if root.suffix not in (".csv", ".parquet"):
        raise DataError(f"wanted a manifest as .csv or .parquet, but got {root}. Convert it.")
    table = read_columns(
        root, "images", needed=("path", "label"), text=TEXT, passed_over=NOT_CARRIED
    )
    texts = {name: as_text(table.column(name), name) for name in TEXT if name in table.column_names}
    if "text" in texts:
        require_images(texts["path"], texts["text"], root)
    files = require_filled(texts, "path", root).tolist()
    named: list[str] = [name for name in ("id", "label") if name in texts]
    said = {name: require_filled(texts, name, root) for name in named}
    if not (folder / files[0]).is_file():
        raise DataError(
            f"wanted the first image of {root} at {folder / files[0]}, but there is no such file. "
            f"Paths are relative to the folder of the manifest, or to the one set as `images`."
        )
    others = [name for name in table.column_names if name not in (*TEXT, *NOT_CARRIED)]
    columns = {name: other_column(table.column(name), name) for name in others}
    said |= {"split": split_of(texts.get("split"), columns, len(files), root), **columns}
    captions = None
    if "text" in texts:
        together = rows_of_each(files)
        require_same(said, files, together, root)
        words = texts["text"].tolist()
        captions = [tuple(words[row] for row in rows if words[row].strip()) for rows in together]
        first = [rows[0] for rows in together]
        files = [files[row] for row in first]
        said = {name: values[first] for name, values in said.items()}
    notes = [f"column `{name}` is left out" for name in NOT_CARRIED if name in table.column_names]
    return Listing(
        root=folder,
        files=files,
        ids=said["id"].tolist() if "id" in said else None,
        classes=said["label"],
        columns={name: said[name] for name in ("split", *columns)},
        captions=captions,
        notes=tuple(notes),
    )


def rows_of_each(names: Sequence[str]) -> list[list[int]]:
    """The rows of each name, in the order in which the names first come.

    Example:
        >>> rows_of_each(["a.jpg", "b.jpg", "a.jpg"])
        [[0, 2], [1]]
    """
    rows: dict[str, list[int]] = {}
    for row, name in enumerate(names):
        rows.setdefault(name, []).append(row)
    return list(rows.values())


def require_same(
    said: Mapping[str, NDArray[Any]],
    files: Sequence[str],
    together: Sequence[Sequence[int]],
    path: Path,
) -> None:
    """Refuses rows of one image that do not agree about it."""
    several = [rows for rows in together if len(rows) > 1]
    for name, column in said.items():
        values = [repr(value) for value in column.tolist()] if several else []  # NaN is NaN
        for rows in several:
            other = next((row for row in rows if values[row] != values[rows[0]]), None)
            if other is not None:
                raise DataError(
                    f"wanted the same `{name}` in all rows of an image in {path}, but "
                    f"{files[other]} has {values[rows[0]]} and then {values[other]}. Make them "
                    f"the same{'' if name in TEXT else ', or drop the column'}."
                )


def require_images(paths: NDArray[Any], texts: NDArray[Any], path: Path) -> None:
    """Refuses texts that belong to no image."""
    is_alone = (np.char.strip(paths) == "") & (np.char.strip(texts) != "")
    if (alone := np.flatnonzero(is_alone)).size:
        raise DataError(
            f"wanted the image of each text in {path}, but {len(alone)} rows have a `text` and no "
            f"`path`, the first being row {alone[0] + 1} below the head: {texts[alone[0]][:80]!r}, "
            f"a text without an image. Write the path of the image it describes, or drop the row."
        )


def other_column(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column that is carried along; flags must be true or false."""
    if pa.types.is_temporal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.large_string())
    values = to_numpy(column, name)
    return as_flag(values, name) if name in FLAGS else values


def split_of(
    given: NDArray[Any] | None, columns: dict[str, NDArray[Any]], rows: int, path: Path
) -> NDArray[Any]:
    """Returns the split of each row, in our words."""
    if given is None:
        flags = [columns[name] for name in FLAGS if name in columns]
        is_searched = np.any(flags, axis=0) if flags else np.full(rows, True)
        return np.where(is_searched, "validation", "train")
    if strange := set(given.tolist()) - set(SPLITS):
        raise DataError(
            f"{path} wants a `split` of {', '.join(SPLITS)}, but has {min(strange)!r}. Rename it."
        )
    return np.array([SPLITS[word] for word in given.tolist()])


MANIFEST = Dataset(
    says="any table of images with `path` and `label`, as CSV or Parquet",
    layout=(
        "the file itself: path,label, and where known split,is_query,is_gallery,camera,text,…\n"
        "(with text, an image may stand in several rows, one for each of its texts)\n"
        "images where its paths say, relative to its folder or to `images`"
    ),
    read=read_manifest,
)

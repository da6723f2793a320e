"""Any table of images, or of their texts, as CSV or Parquet."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from nobackfill.data.listing import Dataset, Listing, invalid, require_folder
from nobackfill.data.tables import as_text, read_columns, require_filled
from nobackfill.errors import DataError
from nobackfill.vectors.arrow_columns import to_numpy
from nobackfill.vectors.columns import FLAGS, as_flag

TEXT = ("id", "path", "label", "split", "text")  # always text, so that "007" stays what it is
SEARCHED = dict.fromkeys(("validation", "val", "test"), "validation")
SPLITS = {"train": "train", **SEARCHED, "unused": "unused"}
IGNORED = ("vector",)  # there are none yet


def read_manifest(root: Path, *, images: str | None = None) -> Listing:
    """Reads a table with the columns `path` and `label`.

    Optional columns: `split` is "train" or "validation" ("val" and "test" mean the same); without
    it, queries and gallery are for validation and the rest for training, and without these columns
    too, all is for validation. `text` is a caption; an image may have several rows, one for each of
    its captions. `id` names the items, which are otherwise named by their path. `is_query`,
    `is_gallery`, `camera` and any other column are kept.

    Args:
        root: Path of the file, `.csv` (with commas) or `.parquet`.
        images: Folder that paths are relative to, by default the folder of the file.
    """
    folder = root.parent if images is None else require_folder(Path(images), "images")
    if root.suffix not in (".csv", ".parquet"):
        raise DataError(f"A manifest must be a .csv or .parquet file, not {root}. Convert it.")
    table = read_columns(root, "images", needed=("path", "label"), text=TEXT, ignored=IGNORED)
    texts = {name: as_text(table.column(name), name) for name in TEXT if name in table.column_names}

    # Check the columns of text.
    if "text" in texts:
        _require_images(texts["path"], texts["text"], root)
    files = require_filled(texts, "path", root).tolist()
    keys = [name for name in ("id", "label") if name in texts]
    columns: dict[str, NDArray[Any]] = {name: require_filled(texts, name, root) for name in keys}
    if not (folder / files[0]).is_file():
        raise DataError(
            f"No image at {folder / files[0]}, the first path in {root}. Paths are relative to the "
            f"folder of the manifest, or to the one set as `images`."
        )

    # Add the split and all other columns.
    kept = [name for name in table.column_names if name not in (*TEXT, *IGNORED)]
    others = {name: _other_column(table.column(name), name) for name in kept}
    columns["split"] = _split(texts.get("split"), others, len(files), root)
    columns |= others

    # With captions, merge the rows of each image into one.
    captions = None
    if "text" in texts:
        rows_of: dict[str, list[int]] = {}
        for row, file in enumerate(files):
            rows_of.setdefault(file, []).append(row)
        _require_same(columns, rows_of, root)
        words = texts["text"].tolist()
        captions = [tuple(words[r] for r in rows if words[r].strip()) for rows in rows_of.values()]
        first = [rows[0] for rows in rows_of.values()]
        files = list(rows_of)
        columns = {name: values[first] for name, values in columns.items()}
    ids = columns.pop("id").tolist() if "id" in columns else None
    return Listing(
        root=folder,
        files=files,
        ids=ids,
        classes=columns.pop("label"),
        columns=columns,
        captions=captions,
        notes=tuple(f"column `{n}` is left out" for n in IGNORED if n in table.column_names),
    )


def _require_same(
    columns: Mapping[str, NDArray[Any]], rows_of: Mapping[str, Sequence[int]], path: Path
) -> None:
    """Raises if the rows of an image disagree about it."""
    repeated = {file: rows for file, rows in rows_of.items() if len(rows) > 1}
    for name, column in columns.items():
        values = [repr(value) for value in column.tolist()] if repeated else []  # NaN equals NaN
        for file, (first, *rest) in repeated.items():
            for row in rest:
                if values[row] != values[first]:
                    raise invalid(
                        path,
                        f"`{name}` must be the same in all rows of an image, but {file} has "
                        f"{values[first]} and then {values[row]}",
                        f"Make them the same{'' if name in TEXT else ', or drop the column'}.",
                    )


def _require_images(paths: NDArray[Any], texts: NDArray[Any], path: Path) -> None:
    """Raises if a text belongs to no image."""
    is_alone = (np.strings.strip(paths) == "") & (np.strings.strip(texts) != "")
    if (alone := np.flatnonzero(is_alone)).size:
        raise invalid(
            path,
            f"{len(alone)} rows have a `text` and no `path`; the first is row {alone[0] + 1} below "
            f"the header: {texts[alone[0]][:80]!r}, a text without an image",
            "Write the path of the image it describes, or drop the row.",
        )


def _other_column(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column that is kept; flags must be true or false."""
    if pa.types.is_temporal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.large_string())
    values = to_numpy(column, name)
    return as_flag(values, name) if name in FLAGS else values


def _split(
    words: NDArray[Any] | None, columns: Mapping[str, NDArray[Any]], rows: int, path: Path
) -> NDArray[Any]:
    """Returns the split of each row: "train", "validation" or "unused"."""
    if words is None:
        flags = [columns[name] for name in FLAGS if name in columns]
        is_searched = np.any(flags, axis=0) if flags else np.full(rows, True)
        return np.where(is_searched, "validation", "train")
    if unknown := set(words.tolist()) - set(SPLITS):
        raise invalid(
            path,
            f"`split` must be one of {', '.join(SPLITS)}, but a row has {min(unknown)!r}",
            "Rename it.",
        )
    return np.array([SPLITS[word] for word in words.tolist()])


MANIFEST = Dataset(
    description="any table of images with `path` and `label`, as CSV or Parquet",
    layout=(
        "the file itself: path,label, and where known split,is_query,is_gallery,camera,text,…\n"
        "(with text, an image may stand in several rows, one for each of its texts)\n"
        "images where its paths say, relative to its folder or to `images`"
    ),
    read=read_manifest,
)

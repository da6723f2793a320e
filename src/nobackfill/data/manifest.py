"""Any table of images, one per row, as CSV or Parquet."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyarrow import csv

from nobackfill.data.listing import Dataset, Listing, require_folder
from nobackfill.errors import DataError
from nobackfill.vectors.as_parquet import to_numpy
from nobackfill.vectors.columns import FLAGS, as_flag

TEXT = ("id", "path", "label", "split", "text")  # always text, so that "007" stays what it is
SEARCHED = dict.fromkeys(("validation", "val", "test"), "validation")
SPLITS = {"train": "train", **SEARCHED, "unused": "unused"}
NOT_CARRIED = ("vector",)  # there are none yet


def read_manifest(root: Path, *, images: str | None = None) -> Listing:
    """Reads a table with the columns `path` and `label`.

    Where there, `split` is "train" or "validation" ("val" and "test" mean the same); without it,
    what asks or is searched is for validation and the rest for training, and where nothing tells
    queries from gallery, all is for validation. `text` is a caption; `is_query`, `is_gallery`,
    `camera` and any other column are carried along. Items are named by `id`, or by their path.

    Args:
        root: The file, `.csv` (with commas) or `.parquet`.
        images: The folder that paths are relative to; that of the file if left out.
    """
    folder = root.parent if images is None else require_folder(Path(images), "the images")
    table = read_columns(root)
    texts = {name: as_text(table.column(name), name) for name in TEXT if name in table.column_names}
    files = require_filled(texts, "path", root).tolist()
    classes = require_filled(texts, "label", root)
    if not (folder / files[0]).is_file():
        raise DataError(
            f"wanted the first image of {root} at {folder / files[0]}, but there is no such file. "
            f"Paths are relative to the folder of the manifest, or to the one set as `images`."
        )
    others = [name for name in table.column_names if name not in (*TEXT, *NOT_CARRIED)]
    columns = {name: other_column(table.column(name), name) for name in others}
    notes = [f"column `{name}` is left out" for name in NOT_CARRIED if name in table.column_names]
    return Listing(
        root=folder,
        files=files,
        ids=require_filled(texts, "id", root).tolist() if "id" in texts else None,
        classes=classes,
        columns={"split": split_of(texts.get("split"), columns, len(files), root), **columns},
        captions=[(text,) if text else () for text in texts["text"]] if "text" in texts else None,
        notes=tuple(notes),
    )


def read_columns(path: Path) -> pa.Table:
    """Returns the table in a file; raises where it is none, or lacks what is needed."""
    if path.suffix not in (".csv", ".parquet"):
        raise DataError(f"wanted a manifest as .csv or .parquet, but got {path}. Convert it.")
    try:
        if path.suffix == ".parquet":
            with pq.ParquetFile(path) as file:
                table = file.read([n for n in file.schema_arrow.names if n not in NOT_CARRIED])
        else:
            types = csv.ConvertOptions(column_types=dict.fromkeys(TEXT, pa.string()))
            table = csv.read_csv(path, convert_options=types)
    except (OSError, pa.ArrowException) as error:
        raise DataError(
            f"wanted a manifest in {path}, but it cannot be read: {error}. Columns of a .csv are "
            f"separated by commas, and text with a comma in it stands in double quotes."
        ) from None
    names = table.column_names
    if missing := [name for name in ("path", "label") if name not in names]:
        raise DataError(
            f"wanted the columns `path` and `label` in {path}, but there is no "
            f"{' and no '.join(f'`{name}`' for name in missing)}; found: {', '.join(names)}. "
            f"Rename the column that holds it, or write commas between columns if this is one name."
        )
    if twice := {name for name in names if names.count(name) > 1}:
        raise DataError(
            f"wanted every column of {path} once, but {', '.join(sorted(twice))} is there twice. "
            f"Rename one."
        )
    if table.num_rows == 0:
        raise DataError(f"wanted images in {path}, but it has no rows. Write it anew.")
    return table


def as_text(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column as text; whole numbers are written out, what is missing becomes ""."""
    if pa.types.is_floating(column.type):
        raise DataError(
            f"column `{name}` wants text or whole numbers, but holds {column.type}. Convert it."
        )
    return np.array(column.cast(pa.large_string()).fill_null("").to_pylist(), dtype=np.str_)


def other_column(column: pa.ChunkedArray, name: str) -> NDArray[Any]:
    """Returns a column that is carried along; flags must be true or false."""
    if pa.types.is_temporal(column.type) or pa.types.is_null(column.type):
        column = column.cast(pa.large_string())
    values = to_numpy(column, name)
    return as_flag(values, name) if name in FLAGS else values


def require_filled(texts: dict[str, NDArray[Any]], name: str, path: Path) -> NDArray[Any]:
    """Returns a column in which no row may be empty."""
    if (empty := np.flatnonzero(np.char.strip(texts[name]) == "")).size:
        raise DataError(
            f"wanted `{name}` filled in each row of {path}, but {len(empty)} have none, the first "
            f"being row {empty[0] + 1} below the head. Fill them in, or drop the rows."
        )
    return texts[name]


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
        "images where its paths say, relative to its folder or to `images`"
    ),
    read=read_manifest,
)

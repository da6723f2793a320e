"""Files that a path names: a file, a folder of shards, or a pattern such as `shards/*.parquet`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from glob import glob, has_magic
from pathlib import Path
from typing import TypedDict, TypeVar
from urllib.parse import unquote

from nobackfill.core.json_files import as_kind, parse_json, read_json_text
from nobackfill.core.numbers import magnitude
from nobackfill.core.suggest import suggest_path
from nobackfill.errors import DataError

# Names of the parts of a collection, in file names and in the column `split`.
TRAIN = frozenset({"train", "training", "fit"})
SEARCHED = frozenset({"validation", "valid", "val", "dev", "test", "eval", "evaluation"})

FORMAT_OF = {  # format by suffix
    ".parquet": "parquet", ".pq": "parquet", ".parq": "parquet",
    ".csv": "delimited", ".tsv": "delimited", ".tab": "delimited",
    ".jsonl": "json_lines", ".ndjson": "json_lines", ".json": "json_document",
    ".arrow": "ipc", ".feather": "ipc", ".ipc": "ipc",
    ".lance": "lance",
    ".safetensors": "safetensors", ".npz": "npz", ".npy": "npy",
    ".pt": "torch_file", ".pth": "torch_file",
}  # fmt: skip
TABLES = frozenset({"parquet", "delimited", "json_lines", "json_document", "ipc", "lance"})
TEXT = frozenset({"delimited", "json_lines", "json_document"})  # formats that may be compressed
COMPRESSED = (".gz", ".zst", ".bz2", ".lz4", ".br")
NAMES = (
    ".parquet, .csv, .tsv, .jsonl, .json (also .gz or .zst), .arrow, .feather, .lance, "
    ".safetensors, .npz, .npy, .pt"
)
INSTEAD = {  # remedy for files in other formats
    **dict.fromkeys([".xlsx", ".xls", ".ods"], "In the spreadsheet, save it as CSV."),
    **dict.fromkeys(
        [".pkl", ".pickle", ".joblib"],
        "A pickle can run code and is never loaded. In Python, write the table or the array as "
        ".parquet or .npz, or pass it to nobackfill.evaluate.",
    ),
    **dict.fromkeys([".h5", ".hdf5"], "In Python, write the arrays as .npz."),
    **dict.fromkeys(
        [".db", ".sqlite", ".sqlite3", ".duckdb"], "Export the table as .parquet or .csv."
    ),
}


Kind = TypeVar("Kind")


class FileRecord(TypedDict):
    """A file of a dataset of Hugging Face."""

    filename: str


class StateRecord(TypedDict):
    """The files of such a dataset, as `state.json` lists them."""

    _data_files: list[FileRecord]


class SplitsRecord(TypedDict):
    """The names of the splits in `dataset_dict.json`."""

    splits: list[str]


@dataclass(frozen=True)
class Place:
    """A file, and the values that its path gives to all of its rows."""

    path: Path
    format: str
    constants: dict[str, str] = field(default_factory=dict)


def files_of(path: Path) -> list[Place]:
    """Returns the files that a path names, in natural order: shard-2 before shard-10."""
    if path.is_file():
        return [Place(path, _known_format(path))]
    if path.is_dir():
        return _in_folder(path)
    if has_magic(str(path)):
        matches = [Path(name) for name in glob(str(path), recursive=True)]
        if not matches:
            raise DataError("No file has such a name. Check the pattern, and its folder.")
        return _alike(place for name in _sorted(matches) for place in files_of(name))
    _known_format(path)
    raise DataError(f"There is no such file. {suggest_path(path)}")


def format_of(path: Path) -> str | None:
    """Returns the format of a file by its suffix, without that of a compression.

    Example:
        >>> format_of(Path("items.CSV.gz")), format_of(Path("items.parquet.gz"))
        ('delimited', None)
    """
    suffixes = [suffix.lower() for suffix in path.suffixes[-2:]]
    if suffixes and suffixes[-1] in COMPRESSED:
        inner = FORMAT_OF.get(suffixes[0]) if len(suffixes) == 2 else None
        return inner if inner in TEXT else None
    return FORMAT_OF.get(suffixes[-1]) if suffixes else None


def _known_format(path: Path) -> str:
    """Returns the format of a file, or raises."""
    if known := format_of(path):
        return known
    suffix = path.suffix.lower()
    raise DataError(
        f"{path.name!r} has {f'the suffix {suffix}' if suffix else 'no suffix'}, but the "
        f"formats of vectors are {NAMES}. {INSTEAD.get(suffix, 'Convert the file, or rename it.')}"
    )


def _in_folder(folder: Path) -> list[Place]:
    """Returns the files of a folder: a Lance table, a dataset of Hugging Face, or shards."""
    if folder.suffix.lower() == ".lance" and (folder / "_versions").is_dir():
        return [Place(folder, "lance")]
    if (folder / "dataset_dict.json").is_file():
        return _splits(folder)
    if (folder / "state.json").is_file():
        state = _read_json(StateRecord, folder / "state.json")
        return [Place(folder / _name(file["filename"]), "ipc") for file in state["_data_files"]]
    # Shards, in folders such as `label=cat` if they are partitioned.
    shards = []
    for name in _sorted(folder.rglob("*")):
        parts = name.relative_to(folder).parts
        is_hidden = any(part.startswith((".", "_")) for part in parts)
        if is_hidden or not name.is_file() or name.name.endswith(("space.json", ".fitted.json")):
            continue
        if known := format_of(name):
            values = [part.partition("=") for part in parts[:-1] if "=" in part]
            constants = {key: unquote(value) for key, _, value in values}
            shards.append(Place(name, known, constants))
    if not shards:
        tables = [child.name for child in _sorted(folder.glob("*.lance"))]
        hint = f" It has the tables {', '.join(tables)}: pass one of them." if tables else ""
        raise DataError(
            f"The folder has no file of vectors, and there is no such file.{hint or ' Check the '}"
            f"{'' if hint else f'path; the formats are {NAMES}.'}"
        )
    return _alike(shards)


def _splits(folder: Path) -> list[Place]:
    """Returns the files of all splits of a dataset of Hugging Face, with the column `split`."""
    names = _read_json(SplitsRecord, folder / "dataset_dict.json")["splits"]
    if len(names) > 1 and (unknown := set(names) - TRAIN - SEARCHED):
        raise DataError(
            f"The dataset has the splits {', '.join(names)}, and {sorted(unknown)[0]!r} is not "
            f"known to mean training or evaluation. Pass the folder of one split."
        )
    return [
        Place(place.path, place.format, {"split": name})
        for name in names
        for place in _in_folder(folder / _name(name))
    ]


def _read_json(kind: type[Kind], path: Path) -> Kind:
    """Reads a file of Hugging Face's datasets."""
    remedy = "Save the dataset again."
    facts = parse_json(read_json_text(path), str(path), remedy)
    return as_kind(kind, facts, str(path), remedy)


def _name(text: str) -> str:
    """Returns the name of a file or a folder within the same folder."""
    if text in ("", ".", "..") or "/" in text or "\\" in text or "\0" in text:
        raise DataError(
            f"The dataset names {text[:80]!r}, which is not within its folder. Save the dataset "
            f"again."
        )
    return text


def _alike(places: Iterable[Place]) -> list[Place]:
    """Returns files of one format; several formats are an error."""
    places = list(places)
    formats = dict.fromkeys(place.format for place in places)
    if len(formats) > 1:
        examples = [next(p.path.name for p in places if p.format == name) for name in formats]
        raise DataError(
            f"The files have several formats, such as {' and '.join(examples)}. Pass a pattern "
            f"for one of them, such as '*{Path(examples[0]).suffix}'."
        )
    if len(places) > 1 and places[0].format not in TABLES:
        raise DataError(
            f"There are {len(places)} files, the first is {places[0].path.name}. Several files "
            f"are read as one table if they are .parquet, .csv, .jsonl or .arrow."
        )
    return places


def _sorted(paths: Iterable[Path]) -> list[Path]:
    """Returns paths in natural order.

    Example:
        >>> [path.name for path in _sorted([Path("s-10"), Path("s-2")])]
        ['s-2', 's-10']
    """
    return sorted(paths, key=lambda path: [
        magnitude(part) if part.isdigit() else (-1, part)
        for part in re.split(r"(\d+)", str(path))
    ])  # fmt: skip

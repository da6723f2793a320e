"""Records beside a file of vectors, for facts that its format cannot store or that came later.

`y.npy.space.json` names the model that made the vectors of `y.npy`, and `y.npy.fitted.json` the
vectors that a head was fitted on. Records that nobackfill writes are bound to the contents of the
file by a digest, so they never describe a file that took its place. A record that a person writes
needs no digest, and may also be named `y.space.json`, as nobackfill 0.1 named all records.
"""

import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from nobackfill.core.atomic_files import sha256, write_text
from nobackfill.core.json_files import parse_object, read_json_text
from nobackfill.errors import DataError
from nobackfill.vectors.paths import format_of
from nobackfill.vectors.space import CONTENTS, REMEDY

KINDS = ("space", "fitted")


@dataclass(frozen=True)
class Beside:
    """A record beside a file.

    Attributes:
        path: Path of the record.
        facts: Content of the record, without the digest.
        is_bound: Whether it has a digest of the file that it describes.
    """

    path: Path
    facts: dict[str, Any]
    is_bound: bool


def path_beside(path: Path | str, kind: str = "space") -> Path:
    """Returns the path of a file's record: `old.parquet.space.json` for `old.parquet`."""
    return Path(path).with_name(f"{Path(path).name}.{kind}.json")


def path_by_stem(path: Path | str, kind: str = "space") -> Path:
    """Returns the other path of a file's record: `old.space.json` for `old.parquet`."""
    return Path(path).with_suffix(f".{kind}.json")


def read_beside(
    path: Path, kind: str = "space", *, verify: bool = True
) -> tuple[list[Beside], list[Path]]:
    """Reads the records of a file, and returns the paths of those that are of other contents.

    Args:
        path: File of vectors, or a folder of them.
        kind: "space" or "fitted".
        verify: Whether to compare digests, for which the file is read; otherwise no record counts
            as one of other contents.
    """
    digest: Callable[[], str] = cache(lambda: digest_of(path))
    records: list[Beside] = []
    others: list[Path] = []
    for place in _places(path, kind):
        is_upcoming = place == _upcoming(path, kind)
        if not _exists(place) or (is_upcoming and any(record.is_bound for record in records)):
            continue
        facts = parse_object(read_json_text(place), str(place), REMEDY)
        contents = facts.pop(CONTENTS, None)
        if verify and contents is not None and contents != digest():
            others.append(place)
        else:
            records.append(Beside(place, facts, contents is not None))
    return records, [place for place in others if place.suffix == ".json" and not records]


def write_beside(path: Path, kind: str, facts: Mapping[str, Any]) -> Path:
    """Writes a record that is bound to the present contents of a file; returns its path."""
    record = path_beside(path, kind)
    contents = {CONTENTS: digest_of(path)} if path.is_file() else {}
    _write(record, {**facts, **contents}, path)
    return record


def digest_of(path: Path) -> str:
    """Returns the digest of a file's contents; that of a folder is unknown."""
    return f"sha256:{sha256(path)}" if path.is_file() else ""


def bind_to_present(path: Path) -> None:
    """Binds the records of a file to its contents, before others take their place.

    A record `y.space.json` becomes one for each file named y, as it described all of them.
    """
    for kind in KINDS:
        _settle_left(path, kind)
        own = path_beside(path, kind)
        if path_by_stem(path, kind) != own and _is_shared(path, kind):
            _divide_shared(path, kind)
        if own.exists():
            try:
                _copy_record(own, path, kind, bind=True)
            except DataError:
                own.unlink()


def announce(path: Path, unfinished: Path, records: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the records of the contents that are about to take the place of a file's."""
    digest = digest_of(unfinished)
    for kind, facts in records.items():
        _write(_upcoming(path, kind), {**facts, CONTENTS: digest}, path)


def settle(path: Path) -> None:
    """Gives the announced records their names, and removes those of earlier contents."""
    for kind in KINDS:
        upcoming, own = _upcoming(path, kind), path_beside(path, kind)
        if upcoming.exists():
            os.replace(upcoming, own)
        else:
            own.unlink(missing_ok=True)


def _places(path: Path, kind: str) -> list[Path]:
    """Returns the paths where the record of a file may be."""
    if not path.name:  # the working directory
        return []
    shared = [path_by_stem(path, kind)] if path.suffix and _is_shared(path, kind) else []
    return [*dict.fromkeys((*shared, path_beside(path, kind), _upcoming(path, kind)))]


def _is_shared(path: Path, kind: str) -> bool:
    """Whether there is a record of all files of a stem, which is not that of a folder."""
    return _exists(path_by_stem(path, kind)) and not path.with_suffix("").exists()


def _divide_shared(path: Path, kind: str) -> None:
    """Replaces the record of all files of a stem by one for each of them."""
    shared = path_by_stem(path, kind)
    for file in files_named_like(path):
        is_meant = kind == "space" or file.suffix.lower() == ".npy"
        if is_meant and not path_beside(file, kind).exists():
            with suppress(DataError):  # nothing is lost of a record that cannot be read
                _copy_record(shared, file, kind, bind=file == path)
    shared.unlink()


def _upcoming(path: Path, kind: str) -> Path:
    """Returns the path of a record while the file is being replaced."""
    return path.with_name(f".{path.name}.{kind}.json.next")


def _settle_left(path: Path, kind: str) -> None:
    """Finishes or removes a record that a killed process announced."""
    upcoming = _upcoming(path, kind)
    if not upcoming.exists():
        return
    facts: Mapping[str, Any] = {}
    with suppress(DataError):
        facts = parse_object(read_json_text(upcoming), str(upcoming), REMEDY)
    if path.is_file() and facts.get(CONTENTS) == digest_of(path):
        os.replace(upcoming, path_beside(path, kind))
    else:
        upcoming.unlink()


def files_named_like(path: Path) -> list[Path]:
    """Returns the files of vectors with the stem of a path, such as y.npy and y.parquet."""
    stem = path.with_suffix("").name
    names = os.listdir(path.parent) if path.parent.is_dir() else []
    files = (path.with_name(name) for name in names)
    return [
        file
        for file in files
        if file.with_suffix("").name == stem and format_of(file) and file.is_file()
    ]


def _copy_record(record: Path, file: Path, kind: str, *, bind: bool) -> None:
    """Writes a record under the name of a file, with the digest of its contents if `bind`."""
    facts = parse_object(read_json_text(record), str(record), REMEDY)
    if bind and CONTENTS not in facts and file.is_file():
        facts[CONTENTS] = digest_of(file)
    if record != path_beside(file, kind) or bind:
        _write(path_beside(file, kind), facts, file)


def _write(record: Path, facts: Mapping[str, Any], file: Path) -> None:
    """Writes a record with the permissions of its file."""
    write_text(record, json.dumps(facts, indent=2, allow_nan=False) + "\n", like=file)


def _exists(path: Path) -> bool:
    """Whether there is such a file; a name may be too long for one."""
    return os.path.exists(path)

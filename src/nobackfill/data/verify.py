"""Comparison of a collection on disk with the one that its authors published."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nobackfill.core.suggest import suggest
from nobackfill.data.decode import open_image
from nobackfill.data.listing import Listing, count_items
from nobackfill.data.registry import DATASETS
from nobackfill.errors import ConfigError, DataError

Decode = Literal["all", "some", "none"]
SAMPLE = 1_000  # number of images that "some" decodes


@dataclass(frozen=True)
class Files:
    """Files with the same fault: their number, the first one, and its error message."""

    number: int = 0
    first: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Check:
    """The result of checking a collection.

    Attributes:
        name: Name of the collection.
        root: Folder that file names are relative to.
        counts: Counts of the copy, named as in `count_items`.
        official: Counts that the authors state; empty if they state none.
        missing: Files that are listed but do not exist.
        undecodable: Files that exist but are no images.
        unused: Files in the folders of the images that are not listed. They are no fault.
        decoded: Number of files that were opened.
        notes: Notes for the reader, such as what was left out.
    """

    name: str
    root: Path
    counts: Mapping[str, int]
    official: Mapping[str, int]
    missing: Files
    undecodable: Files
    unused: Files
    decoded: int
    notes: tuple[str, ...] = ()

    @property
    def differences(self) -> dict[str, int]:
        """Counts minus official counts, where they differ."""
        off = {key: self.counts.get(key, 0) - count for key, count in self.official.items()}
        return {key: by for key, by in off.items() if by}

    @property
    def passed(self) -> bool:
        """Whether all files exist, can be opened, and are as many as the authors state."""
        return not (self.differences or self.missing.number or self.undecodable.number)

    def summary(self) -> dict[str, Any]:
        """Returns the same as a dictionary for JSON."""
        result = {"differences": self.differences, "passed": self.passed}
        return asdict(self) | {"root": str(self.root)} | result


def check_dataset(
    name: str,
    root: Path,
    *,
    decode: Decode = "some",
    watch: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> Check:
    """Reads a collection and compares it with what its authors state.

    Args:
        name: Name in `DATASETS`.
        root: Folder of the collection.
        decode: Images to open: "all", "some" (1,000, evenly spread over the lists) or "none".
        watch: Wraps the files to open, as a progress bar does.
    """
    if name not in DATASETS:
        raise ConfigError(f"unknown collection `{name}`. {suggest(name, DATASETS)}")
    dataset = DATASETS[name]
    listing = dataset.read(root)
    absent, unused = compare_files(listing)
    files = [file for file in choose_files(listing.files, decode) if file not in absent]
    return Check(
        name=name,
        root=listing.root,
        counts=count_items(listing),
        official=dataset.counts,
        missing=Files(len(absent), next((file for file in listing.files if file in absent), None)),
        undecodable=open_files(listing.root, watch(files)),
        unused=unused,
        decoded=len(files),
        notes=listing.notes,
    )


def compare_files(listing: Listing) -> tuple[set[str], Files]:
    """Returns the listed files that do not exist, and the existing files that are not listed."""
    # List the top folders of the listed files: faster than looking for each file.
    absent = set(listing.files)
    unused = []
    tops = {"".join(file.partition("/")[:2]) if "/" in file else "" for file in listing.files}
    for top in [""] if "" in tops else sorted(tops - {"../"}):
        for file in _files_below(os.path.join(listing.root, top), top):
            if file in absent:
                absent.remove(file)
            else:
                unused.append(file)
    # Files behind a link to a folder, or outside of the root, were not listed.
    absent = {file for file in absent if not os.path.isfile(os.path.join(listing.root, file))}
    return absent, Files(len(unused), min(unused, default=None))


def choose_files(files: Sequence[str], decode: Decode) -> Sequence[str]:
    """Returns the files to open."""
    if decode == "none":
        return []
    if decode == "all" or len(files) <= SAMPLE:
        return files
    return [files[row] for row in np.linspace(0, len(files) - 1, SAMPLE).round().astype(int)]


def open_files(root: Path, files: Iterable[str]) -> Files:
    """Opens images; returns those that cannot be decoded, with the error of the first."""
    faults = []
    for file in files:
        try:
            open_image(root / file)
        except DataError as error:
            faults.append((file, str(error)))
    return Files(len(faults), *faults[0]) if faults else Files()


def _files_below(folder: str, name: str) -> Iterator[str]:
    """Yields the files of a folder and its subfolders, each with `name` in front."""
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path, f"{name}{entry.name}/")
            elif entry.is_file():
                yield f"{name}{entry.name}"

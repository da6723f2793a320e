"""Whether a collection on disk is the one its authors gave out."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nobackfill.core.config import suggest
from nobackfill.data.decode import open_image
from nobackfill.data.listing import Listing, count_items
from nobackfill.data.registry import DATASETS
from nobackfill.errors import ConfigError, DataError

Decode = Literal["all", "some", "none"]
SAMPLE = 1_000  # images that are decoded where "some" are


@dataclass(frozen=True)
class Files:
    """Files with the same fate: how many, the first, and why, where there is more to say."""

    number: int = 0
    first: str | None = None
    reason: str | None = None


@dataclass(frozen=True)
class Check:
    """What was found of a collection.

    Attributes:
        name: Of the collection.
        root: The folder that the names of files are relative to.
        counts: What was found, by the names of `count_items`.
        official: What its authors say; empty where they say nothing of what was read.
        missing: Files that the lists name and that are not there.
        undecodable: Files that are there and hold no picture.
        unused: Files in the folders of the images that the listing does not name. No fault.
        decoded: How many files were opened.
        notes: What a reader should know, such as what was left out.
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
        """By how much each official count is exceeded, or missed, where it is not met."""
        off = {key: self.counts.get(key, 0) - count for key, count in self.official.items()}
        return {key: by for key, by in off.items() if by}

    @property
    def passed(self) -> bool:
        """Whether all is there, can be opened, and counts as the authors say."""
        return not (self.differences or self.missing.number or self.undecodable.number)

    def summary(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            **asdict(self),
            "root": str(self.root),
            "differences": self.differences,
            "passed": self.passed,
        }


def check_dataset(
    name: str,
    root: Path,
    *,
    decode: Decode = "some",
    options: Mapping[str, Any] | None = None,
    watch: Callable[[Sequence[str]], Iterable[str]] = iter,
) -> Check:
    """Reads a collection and compares it with what its authors say.

    Args:
        name: One of `DATASETS`.
        root: Its folder.
        decode: Which images to open: "all", "some" (1,000, evenly spread over the lists) or "none".
        options: What its reader shall do otherwise than by default. The official counts are of the
            default, so nothing is compared with them then.
        watch: Passes on the files that are to be opened, one after another: a progress bar.
    """
    if name not in DATASETS:
        raise ConfigError(f"unknown collection `{name}`. {suggest(name, DATASETS)}")
    dataset = DATASETS[name]
    listing = dataset.read(root, **(options or {}))
    absent, unused = compare_files(listing)
    files = [file for file in choose_files(listing.files, decode) if file not in absent]
    return Check(
        name=name,
        root=listing.root,
        counts=count_items(listing),
        official={} if options else dataset.counts,
        missing=Files(len(absent), next((file for file in listing.files if file in absent), None)),
        undecodable=open_files(listing.root, watch(files)),
        unused=unused,
        decoded=len(files),
        notes=listing.notes,
    )


def compare_files(listing: Listing) -> tuple[set[str], Files]:
    """What is named and not there, and what is there and not named; folders are read, not files."""
    absent = set(listing.files)
    unused, first = 0, None
    tops = {"".join(file.partition("/")[:2]) if "/" in file else "" for file in listing.files}
    for top in [""] if "" in tops else sorted(tops - {"../"}):
        for file in _files_below(os.path.join(listing.root, top), top):
            if file in absent:
                absent.remove(file)
            else:
                unused += 1
                first = file if first is None else min(first, file)
    # what a walk does not meet may still be there: behind the link to a folder, or outside
    absent = {file for file in absent if not os.path.isfile(os.path.join(listing.root, file))}
    return absent, Files(unused, first)


def choose_files(files: Sequence[str], decode: Decode) -> Sequence[str]:
    """The files to open."""
    if decode == "none":
        return []
    if decode == "all" or len(files) <= SAMPLE:
        return files
    return [files[row] for row in np.linspace(0, len(files) - 1, SAMPLE).round().astype(int)]


def open_files(root: Path, files: Iterable[str]) -> Files:
    """Opens images; returns those that cannot be, with the reason of the first."""
    number, first, reason = 0, None, None
    for file in files:
        try:
            open_image(root / file)
        except DataError as error:
            number += 1
            if first is None:
                first, reason = file, str(error)
    return Files(number, first, reason)


def _files_below(folder: str, name: str) -> Iterator[str]:
    """The files of a folder and of those in it, each after the name of the folder and a slash."""
    if not os.path.isdir(folder):
        return
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path, f"{name}{entry.name}/")
            elif entry.is_file():
                yield f"{name}{entry.name}"

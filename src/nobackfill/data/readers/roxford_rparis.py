"""ROxford5k and RParis6k: the same buildings in other photos; easy, medium and hard to find.

Radenović et al., Revisiting Oxford and Paris: Large-Scale Image Retrieval Benchmarking, CVPR 2018.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nobackfill.data.decode import image_size
from nobackfill.data.listing import (
    Dataset,
    GroundTruth,
    Listing,
    invalid,
    read_text,
    require_folder,
    role_columns,
)
from nobackfill.data.safe_pickle import read_pickle
from nobackfill.errors import DataError

SIZES = "original_sizes.json"
ORIGINAL = "remove the file if the images have their original sizes."

Box = tuple[float, float, float, float]
Queries = Literal["whole", "cropped"]

LISTS = ("easy", "hard", "junk")
PROTOCOLS = {  # lists whose items are relevant; items of the others are ignored
    "easy": ("easy",),
    "medium": ("easy", "hard"),
    "hard": ("hard",),
}


def read_roxford5k(root: Path, *, queries: Queries = "whole") -> Listing:
    """Reads the revisited Oxford buildings.

    Args:
        root: Folder that contains `gnd_roxford5k.pkl` and `jpg/`.
        queries: "whole" for whole images, as in papers on compatible training, or "cropped" to the
            box around the building, as by the authors of the benchmark.
    """
    return _read_revisited(root, "gnd_roxford5k.pkl", queries)


def read_rparis6k(root: Path, *, queries: Queries = "whole") -> Listing:
    """Reads the revisited Paris buildings.

    Args:
        root: Folder that contains `gnd_rparis6k.pkl` and `jpg/`.
        queries: As in `read_roxford5k`.
    """
    return _read_revisited(root, "gnd_rparis6k.pkl", queries)


def _read_revisited(root: Path, pickle_name: str, queries: Queries) -> Listing:
    """Reads the ground truth of either: the gallery first, then the queries."""
    images = require_folder(root / "jpg", "images")
    gallery, query_files, entries = read_official(root / pickle_name)
    boxes = read_boxes(root, query_files, entries) if queries == "cropped" else []
    sizes = [len(gallery), len(query_files)]
    return Listing(
        root=images,
        files=gallery + query_files,
        classes=np.full(sum(sizes), ""),
        columns=role_columns(np.repeat(["gallery", "query"], sizes)),
        boxes=dict(enumerate(boxes, start=len(gallery))),
        ground_truth={
            level: select_truth(entries, level, gallery, query_files) for level in PROTOCOLS
        },
        notes=(f"queries are {queries} images; papers report the ground truth `medium`",),
    )


def read_official(path: Path) -> tuple[list[str], list[str], list[dict[str, Any]]]:
    """Reads an official ground truth: the files of the gallery and queries, and their entries.

    Other files, such as the ground truth of Oxford before the revision, are refused.
    """
    truth = read_pickle(path, "the ground truth")
    try:
        names, queries, entries = truth["imlist"], truth["qimlist"], truth["gnd"]
        is_valid = (
            all(isinstance(name, str) for name in [*names, *queries])
            and set(names).isdisjoint(queries)
            and len(entries) == len(queries)
            and all(len(entry["bbx"]) == 4 for entry in entries)
            and all(
                0 <= place < len(names)
                for entry in entries
                for kind in LISTS
                for place in entry[kind]
            )
        )
    except (KeyError, TypeError, IndexError):
        is_valid = False
    if not is_valid:
        raise invalid(
            path,
            "it must contain `imlist`, other images in `qimlist`, and for each of these in `gnd` a "
            "box `bbx` and places in `easy`, `hard` and `junk`",
            "Fetch the ground truth of the revisited collections again.",
        )
    return [f"{name}.jpg" for name in names], [f"{name}.jpg" for name in queries], entries


def select_truth(
    entries: Sequence[dict[str, Any]], level: str, gallery: Sequence[str], queries: Sequence[str]
) -> GroundTruth:
    """Returns the relevant and the ignored items of each query at a level of `PROTOCOLS`."""
    relevant, ignored = {}, {}
    for query, entry in zip(queries, entries, strict=True):
        counted = PROTOCOLS[level]
        relevant[query] = [gallery[place] for kind in counted for place in entry[kind]]
        others = (kind for kind in LISTS if kind not in counted)
        ignored[query] = [gallery[place] for kind in others for place in entry[kind]]
    return GroundTruth(relevant, ignored)


def read_boxes(root: Path, queries: Sequence[str], entries: Sequence[dict[str, Any]]) -> list[Box]:
    """Returns the box of each query: left, top, right, bottom.

    Boxes refer to the original images. If the images were made smaller, `original_sizes.json`
    stores the original width and height of each, and the boxes are scaled alike.
    """
    sizes = _read_sizes(root / SIZES)
    boxes: list[Box] = []
    for file, entry in zip(queries, entries, strict=True):
        left, top, right, bottom = map(float, entry["bbx"])
        x, y = (1.0, 1.0) if sizes is None else _scale(root / "jpg" / file, sizes)
        boxes.append((left * x, top * y, right * x, bottom * y))
    return boxes


def _read_sizes(path: Path) -> dict[str, tuple[int, int]] | None:
    """Reads the original width and height of each image; None if there is no such file."""
    if not path.exists():
        return None
    try:
        sizes = json.loads(read_text(path, "the original sizes"))
        return {name: (int(width), int(height)) for name, (width, height) in sizes.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise invalid(
            path,
            f"it must map names to widths and heights, as JSON ({error})",
            f"Write it again, or {ORIGINAL}",
        ) from None


def _scale(path: Path, sizes: dict[str, tuple[int, int]]) -> tuple[float, float]:
    """Returns the width and height of an image as shares of the original ones."""
    if path.name not in sizes:
        raise DataError(f"{SIZES} has no size of {path.name}, a query. Add it, or {ORIGINAL}")
    (width, height), (original_width, original_height) = image_size(path), sizes[path.name]
    return width / original_width, height / original_height


LAYOUT_SIZES = "original_sizes.json (only where the images were made smaller)"

ROXFORD5K = Dataset(
    description="ROxford5k: buildings of Oxford, revisited (Radenović et al., CVPR 2018)",
    layout=f"gnd_roxford5k.pkl\njpg/all_souls_000000.jpg …\n{LAYOUT_SIZES}",
    read=read_roxford5k,
    counts={"images": 5_063, "queries": 70, "gallery": 4_993},
    protocol="roxford_rparis",
)

RPARIS6K = Dataset(
    description="RParis6k: buildings of Paris, revisited (Radenović et al., CVPR 2018)",
    layout=f"gnd_rparis6k.pkl\njpg/paris_defense_000000.jpg …\n{LAYOUT_SIZES}",
    read=read_rparis6k,
    counts={"images": 6_392, "queries": 70, "gallery": 6_322},
    protocol="roxford_rparis",
)

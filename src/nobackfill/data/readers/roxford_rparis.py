"""ROxford5k and RParis6k: the same buildings, seen from elsewhere; easy, medium and hard to find.

Radenović et al., Revisiting Oxford and Paris: Large-Scale Image Retrieval Benchmarking, CVPR 2018.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nobackfill.data.decode import image_size
from nobackfill.data.listing import Dataset, GroundTruth, Listing, read_text, require_folder
from nobackfill.data.safe_pickle import read_pickle
from nobackfill.errors import DataError

SIZES = "original_sizes.json"

Box = tuple[float, float, float, float]

PROTOCOLS = {  # what counts as found; of the three lists, the others count neither way
    "easy": ("easy",),
    "medium": ("easy", "hard"),
    "hard": ("hard",),
}


def read_roxford5k(root: Path, *, queries: Literal["whole", "cropped"] = "whole") -> Listing:
    """Reads the revisited Oxford buildings.

    Args:
        root: The folder that holds `gnd_roxford5k.pkl` and `jpg/`.
        queries: As the papers on compatible training ask, by whole images, or as the benchmark's
            authors do, by the box around the building.
    """
    return read_revisited(root, "gnd_roxford5k.pkl", queries)


def read_rparis6k(root: Path, *, queries: Literal["whole", "cropped"] = "whole") -> Listing:
    """Reads the revisited Paris buildings.

    Args:
        root: The folder that holds `gnd_rparis6k.pkl` and `jpg/`.
        queries: As of `read_roxford5k`.
    """
    return read_revisited(root, "gnd_rparis6k.pkl", queries)


def read_revisited(root: Path, pickle_name: str, queries: Literal["whole", "cropped"]) -> Listing:
    """Reads the ground truth of either: the gallery first, then the queries, in its order."""
    images = require_folder(root / "jpg", "the images")
    path = root / pickle_name
    truth = read_pickle(path, "the ground truth")
    check_truth(truth, path)
    gallery = [f"{name}.jpg" for name in truth["imlist"]]
    asking = [f"{name}.jpg" for name in truth["qimlist"]]
    is_query = np.arange(len(gallery) + len(asking)) >= len(gallery)
    boxes = read_boxes(root, asking, truth["gnd"]) if queries == "cropped" else []
    return Listing(
        root=images,
        files=gallery + asking,
        classes=np.full(len(is_query), ""),
        columns={
            "split": np.full(len(is_query), "validation"),
            "is_query": is_query,
            "is_gallery": ~is_query,
        },
        boxes=dict(enumerate(boxes, start=len(gallery))),
        ground_truth={
            name: select_truth(truth["gnd"], found, gallery, asking)
            for name, found in PROTOCOLS.items()
        },
        notes=(f"queries are {queries} images; papers report the ground truth `medium`",),
    )


def select_truth(
    entries: list[dict[str, Any]], found: tuple[str, ...], gallery: list[str], asking: list[str]
) -> GroundTruth:
    """Returns one way to count: the lists in `found` are relevant, the others are ignored."""
    relevant, ignored = {}, {}
    for query, entry in zip(asking, entries, strict=True):
        relevant[query] = [gallery[place] for name in found for place in entry[name]]
        others = (name for name in ("easy", "hard", "junk") if name not in found)
        ignored[query] = [gallery[place] for name in others for place in entry[name]]
    return GroundTruth(relevant, ignored)


def check_truth(truth: Any, path: Path) -> None:
    """Refuses a ground truth of another kind, such as that of the Oxford before the revision."""
    try:
        names, queries = truth["imlist"], truth["qimlist"]
        is_right = (
            all(isinstance(name, str) for name in [*names, *queries])
            and set(names).isdisjoint(queries)
            and len(truth["gnd"]) == len(queries)
            and all(len(entry["bbx"]) == 4 for entry in truth["gnd"])
            and all(
                0 <= place < len(names)
                for entry in truth["gnd"]
                for kind in ("easy", "hard", "junk")
                for place in entry[kind]
            )
        )
    except (KeyError, TypeError, IndexError):
        is_right = False
    if not is_right:
        raise DataError(
            f"wanted `imlist`, other images in `qimlist`, and for each of these in `gnd` a box "
            f"`bbx` and places in `easy`, `hard` and `junk`, but {path} holds something else. "
            f"Fetch the ground truth of the revisited collections anew."
        )


def read_boxes(root: Path, queries: Sequence[str], entries: Sequence[dict[str, Any]]) -> list[Box]:
    """Returns the box of each query: left, top, right, bottom.

    Boxes were drawn on the original images. Where `original_sizes.json` (of each name, the width
    and height) lies in the folder, the images were made smaller, and so are the boxes.

    Args:
        root: The folder that holds `jpg/`.
        queries: The files of the queries in it.
        entries: Of the ground truth, one per query; the box is under `bbx`.
    """
    sizes = read_sizes(root / SIZES)
    boxes: list[Box] = []
    for file, entry in zip(queries, entries, strict=True):
        left, top, right, bottom = map(float, entry["bbx"])
        across, down = (1.0, 1.0) if sizes is None else scale_of(root / "jpg" / file, sizes)
        boxes.append((left * across, top * down, right * across, bottom * down))
    return boxes


def read_sizes(path: Path) -> dict[str, tuple[int, int]] | None:
    """Returns the original width and height of each image; None where there is no such file."""
    if not path.exists():
        return None
    try:
        sizes = json.loads(read_text(path, "the original sizes"))
        return {name: (int(width), int(height)) for name, (width, height) in sizes.items()}
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(
            f"wanted names with widths and heights as JSON in {path}, but {error}. Write it anew, "
            f"or remove it if the images have their original sizes."
        ) from None


def scale_of(path: Path, sizes: dict[str, tuple[int, int]]) -> tuple[float, float]:
    """Returns how much of its original width and height an image still has."""
    if path.name not in sizes:
        raise DataError(
            f"wanted the original size of every query, but {SIZES} does not name {path.name}. Add "
            f"it, or remove the file if the images have their original sizes."
        )
    (width, height), (original_width, original_height) = image_size(path), sizes[path.name]
    return width / original_width, height / original_height


ROXFORD5K = Dataset(
    says="ROxford5k: buildings of Oxford, revisited (Radenović et al., CVPR 2018)",
    layout=(
        "gnd_roxford5k.pkl\n"
        "jpg/all_souls_000000.jpg …\n"
        "original_sizes.json (only where the images were made smaller)"
    ),
    read=read_roxford5k,
    counts={"images": 5_063, "queries": 70, "gallery": 4_993},
    protocol="roxford_rparis",
)

RPARIS6K = Dataset(
    says="RParis6k: buildings of Paris, revisited (Radenović et al., CVPR 2018)",
    layout=(
        "gnd_rparis6k.pkl\n"
        "jpg/paris_defense_000000.jpg …\n"
        "original_sizes.json (only where the images were made smaller)"
    ),
    read=read_rparis6k,
    counts={"images": 6_392, "queries": 70, "gallery": 6_322},
    protocol="roxford_rparis",
)
